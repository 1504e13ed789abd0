"""The commands that train: `sparktrain sweep TARGET`, `run TARGET`, and `resume DIR`. Wiring alone."""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from sparktrain.cli import common
from sparktrain.cli.common import CommandOutcome, CommandRequest
from sparktrain.cli.flags import (
    FUNCTION,
    AsJson,
    CommandWithExamples,
    Conf,
    Debug,
    Directory,
    Local,
    Master,
    PyFiles,
    Quiet,
    Slots,
    Target,
    TensorFlowOnSpark,
    option,
    settings_of,
    takes,
)
from sparktrain.config.option_catalog import TRIALS, LaunchKeywords, ResumeKeywords, RunKeywords
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.search.space import Space

SWEEP_EXAMPLES = """\
The quickest way to try a function: on this machine, without Spark:
  sparktrain sweep train.py:train --grid lr=0.1,0.01 --metric accuracy --local
Every combination, on this machine:
  sparktrain sweep train.py:train --grid lr=0.1,0.01 --grid dropout=0.4,0.7 \\
      --metric accuracy
Values paired by position; the smallest loss wins:
  sparktrain sweep train.py:train --zip lr=0.1,0.01 --zip dropout=0.4,0.7 \\
      --metric loss
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


@dataclass(frozen=True)
class SweepCommandRequest(CommandRequest):
    """The options of `sparktrain sweep`, not yet checked."""

    grid: tuple[str, ...] = ()
    zipped: tuple[str, ...] = ()
    params: str | None = None


@dataclass(frozen=True)
class RunCommandRequest(CommandRequest):
    """The options of `sparktrain run`, not yet checked."""

    params: tuple[str, ...] = ()
    file: str | None = None


class SweepCommand(CommandWithExamples):
    """The help of `sparktrain sweep`."""

    examples = SWEEP_EXAMPLES


class RunCommand(CommandWithExamples):
    """The help of `sparktrain run`."""

    examples = RUN_EXAMPLES
    heading = "Exit codes, where the one trial is the run itself"


class ResumeCommand(CommandWithExamples):
    """The help of `sparktrain resume`."""

    examples = RESUME_EXAMPLES


@takes(LaunchKeywords)
def sweep(
    target: Target,
    *,
    grid: Annotated[
        list[str] | None, option(TRIALS, "NAME=V1,V2", "Try every combination of these. Repeatable.", "--grid")
    ] = None,
    zipped: Annotated[
        list[str] | None, option(TRIALS, "NAME=V1,V2", "Pair these values by position. Repeatable.", "--zip")
    ] = None,
    params: Annotated[
        str | None, option(TRIALS, "FILE", "What to try, in YAML, JSON or CSV; YAML and JSON may set options too.")
    ] = None,
    tensorflowonspark: TensorFlowOnSpark = False,
    master: Master = None,
    local: Local = False,
    slots: Slots = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **given: Any,
) -> int:
    """Call a training function once for each set of parameters, each in a fresh process on a Spark executor.

    Progress is shown on stderr; the table of trials is printed to stdout.
    """
    request = SweepCommandRequest(
        target, settings_of(LaunchKeywords, given), master, tuple(conf or ()), py_files, as_json, quiet, debug,
        local=local, slots=slots, tensorflowonspark=tensorflowonspark,
        grid=tuple(grid or ()), zipped=tuple(zipped or ()), params=params,
    )  # fmt: skip
    return common.perform(request, lambda: perform_sweep(request))


@takes(RunKeywords)
def run(
    target: Target,
    *,
    param: Annotated[
        list[str] | None, option(FUNCTION, "NAME=VALUE", "A parameter of the function. Repeatable.")
    ] = None,
    params: Annotated[
        str | None, option(FUNCTION, "FILE", "Parameters and options in YAML or JSON; those given here prevail.")
    ] = None,
    tensorflowonspark: TensorFlowOnSpark = False,
    master: Master = None,
    local: Local = False,
    slots: Slots = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **given: Any,
) -> int:
    """Train one model in a gang of processes on Spark executors, which resumes from its last checkpoint after a loss.

    Progress is shown on stderr; the result is printed to stdout.
    """
    request = RunCommandRequest(
        target, settings_of(RunKeywords, given), master, tuple(conf or ()), py_files, as_json, quiet, debug,
        local=local, slots=slots, tensorflowonspark=tensorflowonspark,
        params=tuple(param or ()), file=params,
    )  # fmt: skip
    return common.perform(request, lambda: perform_run(request))


@takes(ResumeKeywords)
def resume(
    directory: Directory,
    *,
    master: Master = None,
    local: Local = False,
    slots: Slots = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
    **given: Any,
) -> int:
    """Resume a run as it was started, without the program that started it; a complete run prints its result.

    Trials that have a result keep it; the others run, from their newest checkpoint where they have one.
    """
    request = CommandRequest(
        directory,
        settings_of(ResumeKeywords, given),
        master,
        tuple(conf or ()),
        py_files,
        as_json,
        quiet,
        debug,
        local=local,
        slots=slots,
    )
    return common.perform(request, lambda: perform_resume(request))


def perform_sweep(request: SweepCommandRequest) -> CommandOutcome:
    """Check everything that needs no Spark, then start the session and sweep. Blocks. Raises as `sparktrain.sweep`."""
    space, settings = _space(request)
    with closing(common.prepare(request, settings.get("name", "sparktrain"))) as call:
        target = common.load(request)

        from sparktrain.api import sweep_target
        from sparktrain.display.summary import summary_table
        from sparktrain.driver.options import SweepOptions

        options = SweepOptions(**settings)
        result = sweep_target(target, space, options, engine=call.engine, display=call.display)
        return CommandOutcome(result, summary_table(result))


def perform_run(request: RunCommandRequest) -> CommandOutcome:
    """Check everything that needs no Spark, then start the session and train. Blocks. Raises as `sparktrain.run`.

    A run that fails is no error here: its summary is shown, with its exit code.
    """
    params, settings = _params(request)
    with closing(common.prepare(request, settings.get("name", "sparktrain"))) as call:
        target = common.load(request)

        from sparktrain.api import run_target
        from sparktrain.display.summary import Lines
        from sparktrain.driver.options import RunOptions

        options = RunOptions(**settings)
        end = run_target(target, params, options, engine=call.engine, display=call.display)
        return CommandOutcome(end.sweep, Lines(end.lines()))


def perform_resume(request: CommandRequest) -> CommandOutcome:
    """Read the run directory, then start the session where something is left to do. Blocks.

    Raises as `sparktrain.resume`; a run that fails is no error here.
    """
    with closing(common.prepare(request, "sparktrain resume")) as call:
        from sparktrain.api import resume_target
        from sparktrain.display.summary import Lines, summary_table
        from sparktrain.driver.forwarded_env import environment
        from sparktrain.results.run_result import RunEnd

        settings = request.settings

        end = resume_target(
            request.target,
            engine=call.engine,
            max_concurrent_trials=settings.get("max_concurrent_trials"),
            agents=settings.get("agents"),
            retry_failed=settings.get("retry_failed", False),
            display=call.display,
            env=environment(settings.get("env", {}), settings.get("forward_env", ())),
            tensorboard=settings.get("tensorboard", False),
        )
        return (
            CommandOutcome(end.sweep, Lines(end.lines()))
            if isinstance(end, RunEnd)
            else CommandOutcome(end, summary_table(end))
        )


def _params(request: RunCommandRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The function's parameters and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.load import load_gang, parse_params

    params, settings = parse_params(request.params), dict(request.settings)
    if request.file is not None:
        file = load_gang(request.file)
        params, settings = {**file.params, **params}, {**file.settings, **settings}
    if "workers" not in settings:
        raise SpecError("pass how many members train: --workers N, or workers in the file of --params")
    return params, settings


def _space(request: SweepCommandRequest) -> "tuple[Space, dict[str, Any]]":
    """What to try, and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.load import load_params, parse_assignments
    from sparktrain.search.space import from_file, grid, zipped

    given = [name for name in ("grid", "zipped", "params") if getattr(request, name)]
    if len(given) != 1:
        have = " and ".join(f"--{name}".replace("zipped", "zip") for name in given) or "none of them"
        raise SpecError(f"pass what to try with one of --grid, --zip and --params: the call has {have}")
    if request.params is not None:
        file = load_params(request.params)
        return from_file(file), {**file.settings, **request.settings}
    if request.grid:
        return grid(parse_assignments(request.grid, "--grid")), dict(request.settings)
    return zipped(parse_assignments(request.zipped, "--zip")), dict(request.settings)
