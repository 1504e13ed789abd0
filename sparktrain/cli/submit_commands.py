"""The commands that bring a job to a cluster: `sparktrain pack` and `sparktrain submit JOB ARGUMENTS`. Wiring alone."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from sparktrain.cli import common, train_commands
from sparktrain.cli.common import LOOKING_CODES, TRAINING_CODES, Output
from sparktrain.cli.flags import Debug, Quiet, option, with_help
from sparktrain.config.option_rules import words as names
from sparktrain.config.panels import OUTPUT, PACK, SIZE, SPARK, WHERE
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.driver.submitted_jobs.command import Job
    from sparktrain.driver.submitted_jobs.job import JobRequest
    from sparktrain.runs.view import RunView

PACK_EXAMPLES = """\
Everything that is installed here, once, for all later calls:
  sparktrain pack
Less of it, in another place; a pack that exists is not uploaded twice:
  sparktrain pack --package 'sparktrain[tensorflow,hdfs]' --package horovod \\
      --to hdfs:///envs
Delete the packs of earlier calls, after a question:
  sparktrain pack --prune
"""
SUBMIT_EXAMPLES = """\
A sweep on four labelled nodes, with a driver in the cluster:
  sparktrain submit --deploy-mode cluster --queue ml --label gpu \\
      --executors 4 sweep train.py:train --grid lr=0.1,0.01 \\
      --metric accuracy --dir hdfs:///runs --name mnist
Only print the spark-submit line:
  sparktrain submit --dry-run run train.py:train --workers 4 --dir hdfs:///runs
A gang on Kubernetes, in pods of the image that conf/k8s.conf names:
  sparktrain submit --properties-file conf/k8s.conf \\
      run train.py:train --workers 4 --dir s3://bucket/runs
Resume a run after its driver was lost, with the Python of the nodes:
  sparktrain submit --pack none resume hdfs:///runs/mnist
"""
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "sweep": train_commands.sweep,
    "run": train_commands.run,
    "resume": train_commands.resume,
    "extend": train_commands.extend,
    "refit": train_commands.refit,
}


@dataclass(frozen=True)
class Environment:
    """Which Python executors run, not yet checked."""

    pack: str | None = "auto"
    """None for what the cluster has by default: a pack on YARN, and the image of the pods on Kubernetes."""
    packages: tuple[str, ...] = ()
    folder: str | None = None


Packages = Annotated[
    list[str] | None,
    option(
        PACK, "NAME", "Pack this and what it requires (default: all that is installed here). Repeatable.", "--package"
    ),
]
Packs = Annotated[
    str | None, option(PACK, "DIR", "Where packs are kept (default: .sparktrain/packs of your home in HDFS).", "--to")
]


@with_help(PACK_EXAMPLES, {**LOOKING_CODES, 2: "the call is wrong: an option, or a package that cannot be packed"})
def pack(
    packages: Packages = None,
    to: Packs = None,
    prune: Annotated[
        bool,
        option(PACK, "", "Make none; list the packs there, except the one that would be made, and delete them after "
               "a question.", "--prune"),
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:  # fmt: skip
    """Make the archive that executors run from: this Python and its packages, without Spark's.

    It needs no Python on the nodes. Its URL is printed to stdout; nothing is uploaded when it exists already.
    """
    environment = Environment("auto", tuple(packages or ()), to)
    if prune:
        return common.look(lambda out: perform_prune(environment), as_json=False, debug=debug)
    return common.look(lambda out: perform_pack(out, environment, quiet), as_json=False, debug=debug)


@with_help(SUBMIT_EXAMPLES, TRAINING_CODES, heading="Exit codes, which are those of the run itself")
def submit(
    kind: Annotated[str, typer.Argument(metavar="JOB", help=f"A job of that command: {', '.join(_FUNCTIONS)}.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="The arguments of that command.")
    ] = None,
    *,
    master: Annotated[
        str | None, option(WHERE, "URL", "yarn, or k8s:// and Kubernetes' address (default: spark.master, else yarn).")
    ] = None,
    deploy_mode: Annotated[
        str | None, option(WHERE, "client|cluster", "The driver runs here (the default), or in the cluster.")
    ] = None,
    queue: Annotated[str | None, option(WHERE, "NAME", "The YARN queue.")] = None,
    label: Annotated[
        str | None, option(WHERE, "NAME", "Executors run on nodes with this label; KEY=VALUE on Kubernetes.")
    ] = None,
    executors: Annotated[int | None, option(SIZE, "N", "Number of executors.")] = None,
    executor_cores: Annotated[int | None, option(SIZE, "N", "Cores of each executor.")] = None,
    executor_memory: Annotated[str | None, option(SIZE, "SIZE", "Memory of each executor, as in 4g.")] = None,
    properties_file: Annotated[str | None, option(SPARK, "FILE", "Spark's configuration, from a file.")] = None,
    conf: Annotated[list[str] | None, option(SPARK, "KEY=VALUE", "Spark's configuration. Repeatable.")] = None,
    py_files: Annotated[str | None, option(SPARK, "F1,F2", "Modules and archives that the function imports.")] = None,
    files: Annotated[str | None, option(SPARK, "F1,F2", "More files for the driver, in cluster mode.")] = None,
    environment: Annotated[
        str | None,
        option(PACK, "auto|none|URL", "Pack this Python (the default), use that of the nodes, or this archive. "
               "On Kubernetes: none.", "--pack"),
    ] = None,
    packages: Packages = None,
    packs: Annotated[str | None, option(PACK, "DIR", "Where packs are kept, as of `sparktrain pack --to`.")] = None,
    dry_run: Annotated[bool, option(OUTPUT, "", "Print the line of spark-submit; do nothing.", "--dry-run")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:  # fmt: skip
    """Run a job on YARN or Kubernetes: build, show and run its spark-submit line, and follow it to its end.

    Options of `submit` come before JOB; the rest are arguments of that command.
    """
    place = {
        "master": master, "mode": deploy_mode, "queue": queue, "label": label, "executors": executors,
        "cores": executor_cores, "memory": executor_memory,
    }  # fmt: skip
    arguments = parsed(kind, words or ())
    executor_python = Environment(environment, tuple(packages or ()), packs)

    def work(out: Output) -> int:
        from sparktrain.driver.submitted_jobs.job import JobRequest

        request = JobRequest(
            kind=kind,
            words=tuple(words or ()),
            place=place,
            conf=common.conf_of(conf or ()),
            properties_file=properties_file,
            files=names(files or ""),
            py_files=names(py_files or ""),
        )
        return perform_submit(out, request, arguments, executor_python, dry_run=dry_run, quiet=quiet)

    return common.look(work, as_json=bool(arguments["as_json"]), debug=debug)


def perform_pack(out: Output, environment: Environment, quiet: bool) -> int:
    """Make the pack and print its URL. Blocks on disk and store."""
    out.write(f"{_packed(environment, quiet, upload=True)}\n".encode())
    return 0


def perform_prune(environment: Environment) -> int:
    """List old packs and delete them. Blocks on disk and store, and until the question is answered."""
    from sparktrain.base import formatting
    from sparktrain.driver.submitted_jobs.env_pack import pack
    from sparktrain.driver.submitted_jobs.env_pack.pack import plan, store_of

    store = store_of(environment.folder)
    packs = pack.old_packs(store, plan(environment.packages).archive)
    if not packs:
        common.print_line(f"no old packs in {store.where()}")
        return 0
    now = store.now("")
    for old_pack in packs:
        common.print_line(old_pack.line(now))
    common.print_line("a running application that uses one of them fails when it starts a new executor")
    size = formatting.size(sum(old_pack.size for old_pack in packs))
    # Which applications run from a pack cannot be known: a person decides.
    if not _agreed(f"delete {formatting.count(len(packs), 'pack')}, {size}, in {store.where()}? [y/N] "):
        common.print_line("nothing was deleted")
        return 0
    pack.remove(store, packs)
    return 0


def perform_submit(
    out: Output,
    request: "JobRequest",
    arguments: Mapping[str, Any],
    environment: Environment,
    *,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Submit a job and return the exit code of its run. Blocks until it has ended. Raises UserError for a wrong job.

    `arguments` are those of the command of that kind, parsed from the words.
    """
    from sparktrain.cluster import yarn_client
    from sparktrain.driver.submitted_jobs.command import line_of, settings_of
    from sparktrain.driver.submitted_jobs.job import job_of

    job, directory = job_of(request, arguments)
    if job.place.in_pods:
        if environment.pack not in (None, "none"):
            raise SpecError(f"--pack {environment.pack} is for YARN; the image of pods has their Python: leave it out")
    elif not dry_run:
        yarn_client.check(settings_of(job))  # before anything is uploaded
    if environment.pack != "none" and not job.place.in_pods:
        job = msgspec.structs.replace(job, archive=_packed(environment, quiet, upload=not dry_run))
    shown = shlex.join(line_of(job))
    if dry_run:
        out.write(f"{shown}\n".encode())
        return 0
    notify = common.silent if quiet else common.print_line
    notify(f"$ {shown}")
    return _run(out, job, directory, notify)


def parsed(kind: str, words: Sequence[str]) -> dict[str, Any]:
    """The parsed arguments of the command `kind`. Raises the usage errors of that command."""
    if kind not in _FUNCTIONS:
        raise typer.BadParameter(f"{kind!r} is no job: pass one of {', '.join(_FUNCTIONS)} after the options of submit")
    app = typer.Typer(add_completion=False)
    app.command(kind)(_FUNCTIONS[kind])
    with typer.main.get_command(app).make_context(f"sparktrain submit {kind}", list(words)) as context:
        return dict(context.params)


def _run(out: Output, job: "Job", directory: str, notify: Callable[[str], None]) -> int:
    from sparktrain.driver.submitted_jobs.command import Mode, line_of
    from sparktrain.driver.submitted_jobs.follow import RunLookout, follow, run_here, spark_submit
    from sparktrain.driver.submitted_jobs.reports import PodReports, YarnReports
    from sparktrain.runs.sweep_outcome import CODE_OF_STATUS

    line = line_of(job, spark_submit(common.spark_home()))
    if job.place.mode is Mode.CLIENT:
        code = run_here(line)
        # Another code is of a job without a result: the directory may hold one of an earlier job.
        if out.as_json and code in CODE_OF_STATUS.values() and (run := RunLookout(directory).look()) is not None:
            _show(out, run)
        return code
    reports = PodReports() if job.place.in_pods else YarnReports(job.tag)
    ended = follow(line, reports, RunLookout(directory), notify)
    if ended.run is not None:
        _show(out, ended.run)
    if ended.verdict.message:
        common.print_line(f"{'error: ' * (ended.verdict.code != 0)}{ended.verdict.message}")
    if ended.output:
        common.print_line(ended.output)
    return ended.verdict.code


def _show(out: Output, run: "RunView") -> None:
    from sparktrain.display.run_outcome import outcome_lines
    from sparktrain.display.summary import Lines, summary_table
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
    from sparktrain.runs.results_json import to_bytes
    from sparktrain.runs.trial_result import model_of

    result = run.as_outcome()
    if out.as_json:
        out.write(to_bytes(result))
    elif run.kind == "run":
        place = place_of(run.directory, LOOK_TIMEOUT_S)
        model = model_of(place.store, place.layout, next(iter(result.trials), None))
        out.show(Lines(outcome_lines(result, model)))
    else:
        out.show(summary_table(result))


def _packed(environment: Environment, quiet: bool, *, upload: bool) -> str:
    """The URL of the pack; with `upload`, the pack is there."""
    from sparktrain.display.live import shown_bytes
    from sparktrain.driver.submitted_jobs.env_pack.pack import pack, plan, store_of

    if environment.pack not in (None, "auto"):
        return environment.pack
    if not upload:
        return store_of(environment.folder).where(plan(environment.packages).archive)
    with shown_bytes("packing", quiet=quiet) as on_bytes:
        packed = pack(environment.packages, environment.folder, on_bytes)
    (common.silent if quiet else common.print_line)(packed.line)
    return packed.url


def _agreed(question: str) -> bool:
    """Whether the user answers yes; a closed stdin means no."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
