"""`python -m sparktrain.torch`: the command line of torchrun, with options of `sparktrain run`. Wiring alone."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar

import typer

from sparktrain.base.optional_packages import is_submitted
from sparktrain.cli import common
from sparktrain.cli.common import TRAINING_CODES, CommandOutcome, CommandRequest
from sparktrain.cli.flags import COMMAND_CLASS, option, with_help
from sparktrain.cli.train_commands import OF_ONE_TRIAL, launched
from sparktrain.cli.training_flags import request_of, takes
from sparktrain.config.backends import Backend
from sparktrain.config.option_catalog import RunKeywords
from sparktrain.config.panels import FUNCTION, GANG, SIZE, WHERE
from sparktrain.config.param_values import shown
from sparktrain.config.quantities import count
from sparktrain.errors import SpecError
from sparktrain.torch.script_runner import run_script

_RENDEZVOUS = "the members of a gang meet by sparktrain's own rendezvous: leave it out"
_LOGS = "the run directory has a log of each member: leave it out, and read them by `sparktrain logs DIR`"
_PROCESSES = "sparktrain starts members by itself: leave it out"
REFUSED = {
    "rdzv-backend": _RENDEZVOUS,
    "rdzv-endpoint": _RENDEZVOUS,
    "rdzv-id": f"{_RENDEZVOUS}, and name the run by --name",
    "rdzv-conf": f"{_RENDEZVOUS}, and limit the wait for members by --start-timeout",
    "node-rank": "one call starts the members of all nodes: leave it out",
    "master-addr": _RENDEZVOUS,
    "master-port": _RENDEZVOUS,
    "local-addr": _RENDEZVOUS,
    "monitor-interval": "agents see at once that a member has ended: leave it out",
    "start-method": _PROCESSES,
    "event-log-handler": "pass --tracking or --notify for events of the run, or leave it out",
    "role": "members of a gang have one role: leave it out",
    "log-dir": "the run directory has a log of each member: pass --dir and --name",
    "redirects": _LOGS,
    "tee": _LOGS,
    "log-line-prefix-template": _LOGS,
    "local-ranks-filter": _LOGS,
    "duplicate-stdout-filters": _LOGS,
    "duplicate-stderr-filters": _LOGS,
    "logs-specs": _LOGS,
    "numa-binding": "Spark and the operating system place the processes: leave it out",
    "signals-to-handle": _PROCESSES,
    "shutdown-timeout": _PROCESSES,
}
"""Options with a value, and the next step for each."""
REFUSED_FLAGS = {
    "no-python": "a member is a Python process: pass a script of Python",
    "run-path": "a script runs under the name __main__ as it is: leave it out",
    "virtual-local-rank": "a member that sees only its own GPU has LOCAL_RANK 0 already: leave it out",
}
"""The same for options without one."""
SHORT = {"redirects": "-r", "tee": "-t"}
PROGRAM = "python -m sparktrain.torch"
EXAMPLES = """\
Two processes of this machine, as torchrun starts them:
  python -m sparktrain.torch --nproc-per-node 2 train.py --epochs 3
On the executors of Spark, with a name that a second call resumes:
  python -m sparktrain.torch --nnodes 4 --master yarn --dir hdfs:///runs \\
      --name big train.py --epochs 90
"""
_OMITTED = (
    "workers", "min_workers", "max_retries", "backend", "ps", "ps_mode", "backup_workers", "evaluator", "local_steps",
    "metric", "mode", "data_version", "data_cache", "data_cache_limit",
)  # fmt: skip
"""Options of `run` that torchrun has by another name, or that a script without `ctx` has no use for."""

F = TypeVar("F", bound=Callable[..., int])


@dataclass(frozen=True, kw_only=True)
class ScriptRequest(CommandRequest):
    """The call, not yet checked."""

    arguments: tuple[str, ...] = ()
    """Those of the script."""
    is_module: bool = False
    nodes: str | None = None
    processes: str | None = None
    restarts: str | None = None
    refused: tuple[str, ...] = ()
    """Options of torchrun that have no meaning here."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and return its exit code. Blocks."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    settings = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
    app.command("torch", cls=getattr(torchrun, COMMAND_CLASS), context_settings=settings)(torchrun)
    command = typer.main.get_command(app)
    try:
        return int(command(list(arguments) or ["--help"], prog_name=PROGRAM, standalone_mode=False) or 0)
    except Exception as error:
        # As in sparktrain.cli.command_table: usage errors are known by what they can do.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return common.fail(f"{message()}\nsee: {PROGRAM} --help", 2)


def _refusing(function: F) -> F:
    """Give the command the options that it refuses: they are not in its help."""
    parameters = list(signature(function).parameters.values())
    for name in REFUSED:
        names = (f"--{name}", f"--{name.replace('-', '_')}", *([SHORT[name]] if name in SHORT else []))
        hint = Annotated[str | None, typer.Option(*names, hidden=True)]
        parameters.append(Parameter(_key(name), Parameter.KEYWORD_ONLY, default=None, annotation=hint))
    for name in REFUSED_FLAGS:
        flag = Annotated[bool, typer.Option(f"--{name}", f"--{name.replace('-', '_')}", hidden=True)]
        parameters.append(Parameter(_key(name), Parameter.KEYWORD_ONLY, default=False, annotation=flag))
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # Typer makes its options from it
    return function


def _key(name: str) -> str:
    return f"refused_{name.replace('-', '_')}"


@with_help(EXAMPLES, TRAINING_CODES, heading=OF_ONE_TRIAL)
@_refusing
@takes(RunKeywords, _OMITTED)
def torchrun(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m the module.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Those of the script.")] = None,
    *,
    nodes: Annotated[
        str | None, option(SIZE, "N|MIN:MAX", "Nodes of the cluster (default: 1). With a range, the run continues with "
                           "MIN after a loss.", "--nnodes"),
    ] = None,
    processes: Annotated[
        str | None, option(SIZE, "N", "Members for each node (default: 1).", "--nproc-per-node", "--nproc_per_node")
    ] = None,
    restarts: Annotated[
        str | None, option(GANG, "N", "Restarts without a newer checkpoint (default: 3).", "--max-restarts",
                           "--max_restarts"),
    ] = None,
    standalone: Annotated[bool, option(WHERE, "", "The same as --local.", "--standalone")] = False,
    module: Annotated[bool, option(FUNCTION, "", "SCRIPT is a module, as of `python -m`.", "-m", "--module")] = False,
    **flags: Any,
) -> int:  # fmt: skip
    """Run a script for torchrun, unchanged, in a gang of processes: here, or on executors of Spark.

    It runs on this machine without Spark, unless --master, --conf or spark-submit name a session. The members restart
    together after a loss: the script resumes from what it has saved itself.
    """
    refused = tuple(name for name in (*REFUSED, *REFUSED_FLAGS) if flags.pop(_key(name)) not in (None, False))
    is_of_spark = flags["master"] or flags["conf"] or flags["py_files"] or is_submitted()
    flags["local"] = bool(flags["local"] or standalone or not is_of_spark)
    request = request_of(
        ScriptRequest, script, RunKeywords, flags, arguments=tuple(arguments or ()), is_module=module, nodes=nodes,
        processes=processes, restarts=restarts, refused=refused,
    )  # fmt: skip
    return common.perform(request, lambda: perform_script(request))


def perform_script(request: ScriptRequest) -> CommandOutcome:
    """Check everything that needs no Spark, then start the session and run the script. Blocks. Raises UserError."""
    for name in request.refused:
        raise SpecError(f"--{name}: {REFUSED.get(name) or REFUSED_FLAGS[name]}")
    gang = gang_of(request.nodes, request.processes, local=request.local)
    slots = request.slots or gang["workers"] if request.local else request.slots
    settings = {**request.settings, **gang, **retries_of(request.restarts), "backend": Backend.TORCH.value}

    from sparktrain.usercode.script_target import script_target

    target = script_target(run_script, request.target, is_module=request.is_module)
    params = {
        "module": target.script,
        "arguments": list(request.arguments),
        "path": "" if request.is_module else request.target,
        "folder": os.getcwd(),
    }
    command = common.prepare(replace(request, slots=slots), settings.get("name", "sparktrain"))
    with closing(command):
        from sparktrain.driver.options import RunOptions
        from sparktrain.driver.prepare.checked_call import compose
        from sparktrain.search.space import single

        return launched(compose(target, single(params), RunOptions(**settings)), command)


def gang_of(nodes: str | None, processes: str | None, *, local: bool) -> dict[str, int]:
    """The options `workers` and, for a range of nodes, `min_workers` of a run. Raises SpecError."""
    per_node = _processes(processes)
    least, separator, most = (nodes or "1").partition(":")
    most_nodes = _nodes(most if separator else least, nodes)
    least_nodes = _nodes(least, nodes)
    if least_nodes > most_nodes:
        raise SpecError(f"--nnodes ({nodes}) must be MIN:MAX with MIN up to MAX, such as {most_nodes}:{least_nodes}")
    if local and most_nodes > 1:
        raise SpecError(
            f"--nnodes ({nodes}): this machine is one node; pass --master for a cluster of Spark, call it by "
            "spark-submit, or leave it out"
        )
    gang = {"workers": most_nodes * per_node}
    return gang | ({"min_workers": least_nodes * per_node} if least_nodes < most_nodes else {})


def retries_of(restarts: str | None) -> dict[str, int]:
    """The option `max_retries` of a run, where it is given. Raises SpecError."""
    if restarts is None:
        return {}
    if not restarts.isdecimal():
        raise SpecError(f"--max-restarts ({shown(restarts)}) must be a number of restarts, such as 3")
    return {"max_retries": int(restarts)}


def _nodes(text: str, option: str | None) -> int:
    if not text.isdecimal():
        raise SpecError(f"--nnodes ({option}) must be a number of nodes or MIN:MAX, such as 2 or 1:4")
    return count(int(text), "--nnodes", least=1)


def _processes(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isdecimal():
        raise SpecError(
            f"--nproc-per-node ({shown(text)}) must be a number: which devices executors have is known to Spark alone; "
            "pass how many members each node gets, such as 2"
        )
    return count(int(text), "--nproc-per-node", least=1)
