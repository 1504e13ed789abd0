"""The commands that train: `sparktrain sweep TARGET`, `run TARGET`, and `resume DIR`. Wiring alone."""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from sparktrain.cli import common
from sparktrain.cli.common import TRAINING_CODES, CommandOutcome, CommandRequest, PreparedCommand
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.cli.training_flags import (
    Form,
    KeepFiles,
    MetricFile,
    MetricFrom,
    ScriptArguments,
    Target,
    TensorFlowOnSpark,
    request_of,
    script_of,
    takes,
)
from sparktrain.config.call_option import Keywords, settled
from sparktrain.config.option_catalog import ExtendKeywords, LaunchKeywords, RefitKeywords, ResumeKeywords, RunKeywords
from sparktrain.config.panels import FUNCTION, OUTPUT, TRIALS
from sparktrain.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class SweepCommandRequest(CommandRequest):
    """The options of `sparktrain sweep`, not yet checked."""

    grid: tuple[str, ...] = ()
    space: tuple[str, ...] = ()
    zipped: tuple[str, ...] = ()
    params: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunCommandRequest(CommandRequest):
    """The options of `sparktrain run`, not yet checked."""

    params: tuple[str, ...] = ()
    file: str | None = None


def params_of(request: RunCommandRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The function's parameters and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.param_files.load import load_gang, parse_params
    from sparktrain.usercode.script_target import is_script_file

    params = parse_params(request.params)
    settings = dict(request.settings)
    if request.file is not None:
        file = load_gang(request.file)
        params = {**file.params, **params}
        settings = {**file.settings, **settings}
    if "workers" not in settings and is_script_file(request.target):
        settings["workers"] = 1  # as Python runs it
    if "workers" not in settings:
        raise SpecError("pass how many members train: --workers N, or workers in the file of --params")
    return params, settings


def extension_of(request: SweepCommandRequest) -> "Extension":
    from sparktrain.config.param_files.load import parse_assignments, parse_space
    from sparktrain.driver.continuation.extension import Extension

    sampled = parse_space(request.space) if request.space else {}
    lists = parse_assignments(request.grid, "--grid") if request.grid else {}
    return Extension(request.settings.get("trials"), {**sampled, **lists} or None)


def space_of(request: SweepCommandRequest) -> "tuple[Space, dict[str, Any]]":
    """What to try, and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.param_files.load import load_params, parse_assignments, parse_space
    from sparktrain.search.sampled_space import from_file, space
    from sparktrain.search.space import grid, zipped

    options = [name for name in ("grid", "space", "zipped", "params") if getattr(request, name)]
    if len(options) != 1 and options != ["grid", "space"]:
        have = " and ".join(f"--{name}".replace("zipped", "zip") for name in options) or "none of them"
        raise SpecError(
            f"pass what to try with one of --grid, --zip, --space and --params, or with --space and --grid: the call "
            f"has {have}"
        )
    if request.params is not None:
        file = load_params(request.params)
        return from_file(file), {**file.settings, **request.settings}
    if request.space:
        sampled = parse_space(request.space)
        lists = parse_assignments(request.grid, "--grid")
        if twice := sorted(sampled.keys() & lists.keys()):
            raise SpecError(f"{twice[0]!r} is given by --space and by --grid: remove one of them")
        return space({**sampled, **lists}), dict(request.settings)
    if request.grid:
        return grid(parse_assignments(request.grid, "--grid")), dict(request.settings)
    return zipped(parse_assignments(request.zipped, "--zip")), dict(request.settings)


ATTACH_EXAMPLES = """\
A run that a notebook has submitted, until its end:
  sparktrain attach hdfs:///exp/big
"""

if TYPE_CHECKING:
    from sparktrain.driver.continuation.extension import Extension
    from sparktrain.driver.prepare.checked_call import CheckedCall
    from sparktrain.search.space import Space

KEYWORDS: dict[str, type[Keywords]] = {
    "sweep": LaunchKeywords,
    "run": RunKeywords,
    "resume": ResumeKeywords,
    "extend": ExtendKeywords,
    "refit": RefitKeywords,
}
"""The options of each command here."""
SWEEP_EXAMPLES = """\
The quickest way to try a function: on this machine, without Spark:
  sparktrain sweep train.py:train --grid lr=0.1,0.01 --metric accuracy --local
A script as it is, with arguments of its own; it reports by
sparktrain.report(accuracy=...), or --metric-from finds it in its output:
  sparktrain sweep train.py --grid lr=0.1,0.01 --metric accuracy --local \\
      --metric-from 'accuracy: ([0-9.]+)' -- --epochs 3
Every combination, on this machine:
  sparktrain sweep train.py:train --grid lr=0.1,0.01 --grid dropout=0.4,0.7 \\
      --metric accuracy
Values paired by position; the smallest loss wins:
  sparktrain sweep train.py:train --zip lr=0.1,0.01 --zip dropout=0.4,0.7 \\
      --metric loss
Sampled, each trial from the results of those before:
  sparktrain sweep train.py:train --space 'lr=loguniform(1e-4, 1e-1)' \\
      --space 'dropout=uniform(0, 0.5)' --trials 40 --metric accuracy
What would run, and how long by earlier trials, without a start:
  sparktrain sweep train.py:train --params sweep.yaml --dry-run --local
What to try from a file, on YARN, the result as JSON for a program:
  sparktrain sweep train.py:train --params sweep.yaml --master yarn \\
      --dir /shared/runs --json > result.json
"""
RUN_EXAMPLES = """\
Four processes train one model, in a ring of Horovod:
  sparktrain run train.py:train --workers 4 --param lr=0.01 --master yarn \\
      --dir /shared/runs --name big
The same without Horovod, on this machine:
  sparktrain run train.py:train --workers 2 --backend tensorflow \\
      --param lr=0.01
"""
RESUME_EXAMPLES = """\
Resume after the driver was lost, with the same options of the session:
  sparktrain resume /shared/runs/mnist --master yarn
Retry failed trials too:
  sparktrain resume /shared/runs/mnist --retry-failed
"""


REFIT_EXAMPLES = """\
The best trial on eight processes, for 100 epochs, from its checkpoint:
  sparktrain refit /shared/runs/mnist --workers 8 --param epochs=100 \\
      --master yarn --name final
"""
EXTEND_EXAMPLES = """\
40 trials more:
  sparktrain extend /shared/runs/mnist --trials 40
40 more, over a wider range:
  sparktrain extend /shared/runs/mnist --trials 40 \\
      --space 'lr=loguniform(1e-6, 1)'
New values of a grid: earlier combinations keep their results:
  sparktrain extend /shared/runs/mnist --grid lr=0.1,0.01,0.001
"""
OF_ONE_TRIAL = "Exit codes, where the one trial is the run itself"


@with_help(SWEEP_EXAMPLES, TRAINING_CODES)
@takes(LaunchKeywords)
def sweep(
    function: Target,
    arguments: ScriptArguments = None,
    *,
    grid: Annotated[
        list[str] | None, option(TRIALS, "NAME=V1,V2", "Try every combination of these. Repeatable.", "--grid")
    ] = None,
    space: Annotated[
        list[str] | None,
        option(TRIALS, "NAME=DIST", "Sample this parameter, as in lr=loguniform(1e-4,1e-1). Repeatable.", "--space"),
    ] = None,
    zipped: Annotated[
        list[str] | None, option(TRIALS, "NAME=V1,V2", "Pair these values by position. Repeatable.", "--zip")
    ] = None,
    dry_run: Annotated[
        bool,
        option(OUTPUT, "", "Check the call, show what would run and how long, and start nothing.", "--dry-run"),
    ] = False,
    params: Annotated[
        str | None, option(TRIALS, "FILE", "What to try, in YAML, JSON or CSV; YAML and JSON may set options too.")
    ] = None,
    form: Form = None,
    metric_from: MetricFrom = None,
    metric_file: MetricFile = None,
    keep_files: KeepFiles = None,
    tensorflowonspark: TensorFlowOnSpark = False,
    **flags: Any,
) -> int:
    """Call a training function once for each set of parameters, each in a fresh process on a Spark executor.

    Progress is shown on stderr; the table of trials is printed to stdout.
    """
    request = request_of(
        SweepCommandRequest, function, LaunchKeywords, flags, tensorflowonspark=tensorflowonspark,
        grid=tuple(grid or ()), space=tuple(space or ()), zipped=tuple(zipped or ()), params=params,
        script=script_of(
            arguments, form=form, metric_from=metric_from, metric_file=metric_file, keep_files=keep_files
        ),
    )  # fmt: skip
    if dry_run:
        return common.look(lambda out: perform_dry_run(request, out), as_json=request.as_json, debug=request.debug)
    return common.perform(request, lambda: perform_sweep(request))


@with_help(RUN_EXAMPLES, TRAINING_CODES, heading=OF_ONE_TRIAL)
@takes(RunKeywords)
def run(
    function: Target,
    arguments: ScriptArguments = None,
    *,
    param: Annotated[
        list[str] | None, option(FUNCTION, "NAME=VALUE", "A parameter of the function. Repeatable.")
    ] = None,
    params: Annotated[
        str | None, option(FUNCTION, "FILE", "Parameters and options in YAML or JSON; those given here prevail.")
    ] = None,
    form: Form = None,
    metric_from: MetricFrom = None,
    metric_file: MetricFile = None,
    keep_files: KeepFiles = None,
    tensorflowonspark: TensorFlowOnSpark = False,
    **flags: Any,
) -> int:
    """Train one model in a gang of processes on Spark executors, which resumes from its last checkpoint after a loss.

    Progress is shown on stderr; the result is printed to stdout.
    """
    request = request_of(
        RunCommandRequest, function, RunKeywords, flags, tensorflowonspark=tensorflowonspark,
        params=tuple(param or ()), file=params,
        script=script_of(
            arguments, form=form, metric_from=metric_from, metric_file=metric_file, keep_files=keep_files
        ),
    )  # fmt: skip
    return common.perform(request, lambda: perform_run(request))


@with_help(RESUME_EXAMPLES, TRAINING_CODES)
@takes(ResumeKeywords)
def resume(
    directory: Directory,
    **flags: Any,
) -> int:
    """Resume a run as it was started, without the program that started it; a complete run prints its result.

    Trials that have a result keep it; the others run, from their newest checkpoint where they have one.
    """
    request = request_of(CommandRequest, directory, ResumeKeywords, flags)
    return common.perform(request, lambda: perform_resume(request))


@with_help(EXTEND_EXAMPLES, TRAINING_CODES)
@takes(ExtendKeywords)
def extend(
    directory: Directory,
    *,
    space: Annotated[
        list[str] | None, option(TRIALS, "NAME=DIST", "A wider distribution of this parameter. Repeatable.", "--space")
    ] = None,
    grid: Annotated[
        list[str] | None, option(TRIALS, "NAME=V1,V2", "All values of this list, with new ones. Repeatable.", "--grid")
    ] = None,
    **flags: Any,
) -> int:
    """Continue a finished or stopped sweep with more trials, or with a wider space.

    Trials that have a result keep it, and the sampler knows all of them.
    """
    additions = {"grid": tuple(grid or ()), "space": tuple(space or ())}
    request = request_of(SweepCommandRequest, directory, ExtendKeywords, flags, **additions)
    return common.perform(request, lambda: perform_resume(request, extension_of(request)))


@with_help(REFIT_EXAMPLES, TRAINING_CODES, heading=OF_ONE_TRIAL)
@takes(RefitKeywords)
def refit(
    directory: Directory,
    *,
    param: Annotated[
        list[str] | None, option(FUNCTION, "NAME=VALUE", "A parameter in place of the trial's. Repeatable.")
    ] = None,
    **flags: Any,
) -> int:
    """Train the best trial of a sweep on, in a gang of processes, from a copy of its checkpoint.

    The result is a new run, beside the sweep unless --dir names another place.
    """
    request = request_of(RunCommandRequest, directory, RefitKeywords, flags, params=tuple(param or ()))
    return common.perform(request, lambda: perform_refit(request))


def perform_refit(request: RunCommandRequest) -> CommandOutcome:
    """Read the sweep's directory, then start the session and train. Blocks. Raises as `sparktrain.refit`."""
    params, settings = params_of(request)
    with closing(common.prepare(request, settings.get("name", "sparktrain refit"))) as command:
        from sparktrain.driver.continuation.refit import compose_refit

        return launched(compose_refit(request.target, params, settings), command)


def perform_sweep(request: SweepCommandRequest) -> CommandOutcome:
    """Check everything that needs no Spark, then start the session and sweep. Blocks. Raises as `sparktrain.sweep`."""
    space, settings = space_of(request)
    with closing(common.prepare(request, settings.get("name", "sparktrain"))) as command:
        target = common.load(request)

        from sparktrain.driver.options import SweepOptions
        from sparktrain.driver.prepare.checked_call import compose

        return launched(compose(target, space, SweepOptions(**settings)), command)


def perform_dry_run(request: SweepCommandRequest, out: common.Output) -> int:
    """Check everything that needs no Spark, and show what would run. Blocks. Raises as `sparktrain.sweep`."""
    space, settings = space_of(request)
    if request.slots is not None and not request.local:
        raise SpecError("--slots is for --local alone: add --local, or pass --max-concurrent-trials")

    from rich.console import Group
    from rich.text import Text

    from sparktrain.driver.continuation.forecast import forecast
    from sparktrain.driver.options import SweepOptions
    from sparktrain.driver.prepare.checked_call import compose

    slots = (2 if request.slots is None else request.slots) if request.local else None
    lines = forecast(compose(common.load(request), space, SweepOptions(**settings)), slots)
    if out.as_json:
        out.document({"version": 1, "lines": lines})
    else:
        out.show(Group(*map(Text, lines)))
    return 0


def perform_run(request: RunCommandRequest) -> CommandOutcome:
    """Check everything that needs no Spark, then start the session and train. Blocks. Raises as `sparktrain.run`."""
    params, settings = params_of(request)
    with closing(common.prepare(request, settings.get("name", "sparktrain"))) as command:
        target = common.load(request)

        from sparktrain.driver.options import RunOptions
        from sparktrain.driver.prepare.checked_call import compose
        from sparktrain.search.space import single

        return launched(compose(target, single(params), RunOptions(**settings)), command)


def perform_resume(request: CommandRequest, extension: "Extension | None" = None) -> CommandOutcome:
    """Read the run directory, then start the session where something is left to do, or `extension` adds it. Blocks.

    Raises as `sparktrain.resume`.
    """
    with closing(common.prepare(request, "sparktrain resume")) as command:
        from sparktrain.driver.prepare.stored_call import compose_again

        kind: type[ResumeKeywords] | type[ExtendKeywords] = ResumeKeywords if extension is None else ExtendKeywords
        return launched(compose_again(request.target, settled(kind, request.settings), extension), command)


def launched(call: "CheckedCall", command: PreparedCommand) -> CommandOutcome:
    """Start the session where something is left to do, and perform the call. Blocks.

    A run that fails is no error here: its summary is shown, with its exit code.
    """
    from sparktrain.display.summary import Lines, summary_table
    from sparktrain.driver.agent_sources import LateAgents
    from sparktrain.driver.finish import run_end
    from sparktrain.driver.launch import launch

    result = launch(call, LateAgents(command.engine), command.display)
    if call.definition.plan.kind == "run":
        return CommandOutcome(result, Lines(run_end(call, result).lines()))
    return CommandOutcome(result, summary_table(result))


@with_help(ATTACH_EXAMPLES, TRAINING_CODES)
def attach(directory: Directory, as_json: AsJson = False, debug: Debug = False) -> int:
    """Show a run that another process has started until it has ended, and its result. Ctrl-C leaves it running."""
    return common.watch_to_end(lambda: attached_outcome(directory, quiet=as_json), as_json=as_json, debug=debug)


def attached_outcome(directory: str, *, quiet: bool) -> CommandOutcome:
    """The end of the run in a directory. Blocks until it has ended. Raises as `RunHandle.result`."""
    from sparktrain.display.live import choose_display
    from sparktrain.display.summary import Lines, summary_table
    from sparktrain.driver.clustered.run_handle import attached

    run = attached(directory)
    display = choose_display(quiet=quiet)
    display.start()
    try:
        ended = run.wait(display)
    finally:
        display.close()
    if run.is_gang:
        return CommandOutcome(ended, Lines(run.run_end(ended).lines()))
    return CommandOutcome(ended, summary_table(ended))
