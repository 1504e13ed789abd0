"""The command that calls a training function for one batch, without Spark: `sparktrain check TARGET`. Wiring alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from sparktrain.cli import common
from sparktrain.cli.common import EXIT_CODES, Output
from sparktrain.cli.flags import Debug, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.cli.training_flags import Target
from sparktrain.config.panels import FUNCTION, GANG, METRIC, OUTPUT, SIZE
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.testing.function_check import CheckReport, CheckRequest

EXAMPLES = """\
Whether a function runs, and what it leaves:
  sparktrain check train.py:train --param lr=0.1 --metric accuracy
The same as rank 0 of a gang of four, with the checks that a gang makes:
  sparktrain check train.py:train --param lr=0.1 --workers 4
For a program:
  sparktrain check train.py:train --param lr=0.1 --json
"""
CODE_OF_STATUS = {"ok": 0, "failed": 3, "refused": 2, "timeout": 6, "crashed": 3}
Backend = Annotated[
    str | None, option(GANG, "NAME", "What connects members: horovod, tensorflow, none, or auto (the default).")
]
Env = Annotated[
    list[str] | None,
    option(FUNCTION, "NAME[=VALUE]", "An environment variable; NAME alone takes its value here. Repeatable.", "--env"),
]
Data = Annotated[
    list[str] | None, option(FUNCTION, "NAME=PATH", "Files for ctx.dataset(NAME), as of `sparktrain run`. Repeatable.")
]
_SHOWN = 5
"""Lines of a list at most."""


@with_help(
    EXAMPLES,
    {
        0: "the function returned a result, and the metric where one is named",
        1: EXIT_CODES[1],
        2: "the call is wrong: an option, a file or the function; or it needs a real gang",
        3: "the function failed, or returned no result",
        6: "the function did not end before --timeout",
        130: EXIT_CODES[130],
    },
)
def check(
    target: Target,
    *,
    param: Annotated[
        list[str] | None, option(FUNCTION, "NAME=VALUE", "A parameter of the function. Repeatable.")
    ] = None,
    metric: Annotated[str | None, option(METRIC, "NAME", "An entry that the result must have.")] = None,
    workers: Annotated[int, option(SIZE, "N", "Call it as rank 0 of a gang of N (default: 1).")] = 1,
    backend: Backend = None,
    seed: Annotated[
        int, option(FUNCTION, "N", "The value of ctx.seed, and the seed of the generators (default: 0).")
    ] = 0,
    folds: Annotated[int, option(FUNCTION, "N", "The value of ctx.folds; ctx.fold is 0 (default: 1).")] = 1,
    env: Env = None,
    data: Data = None,
    timeout: Annotated[
        str, option(OUTPUT, "TIME", "End the function after so long, as in 90s, 5m (default: 2m).")
    ] = "2m",
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Call a training function for one batch in a process of its own; show what it ships, reports, returns and saves.

    Needs no Spark. fit() is limited to one batch of one epoch, and ctx.should_stop() is True after the first report.
    """

    def work(out: Output) -> int:
        from sparktrain.config import backends
        from sparktrain.config.data_sources import named_paths
        from sparktrain.config.metric_names import metric_name
        from sparktrain.config.param_files.load import parse_params
        from sparktrain.config.quantities import count
        from sparktrain.driver.forwarded_env import environment
        from sparktrain.testing.function_check import CheckRequest

        variables = common.variables_of(env)
        request = CheckRequest(
            target=target,
            params=parse_params(param or ()),
            workers=count(workers, "--workers", 1),
            backend=backends.backend_or_auto(backends.AUTO if backend is None else backend, "--backend"),
            metric=metric_name(metric, "--metric"),
            seed=seed,
            folds=count(folds, "--folds", 1),
            env=environment(variables.get("env", {}), variables.get("forward_env", ())),
            data=named_paths(data or (), "--data"),
            timeout_s=_limit(timeout),
        )
        return show_check(out, request)

    return common.look(work, as_json=as_json, debug=debug)


def show_check(out: Output, request: "CheckRequest") -> int:
    """Run the check and show its report. Blocks until the function has ended, or its time is over."""
    from sparktrain.display.summary import Lines
    from sparktrain.testing.check_process import checked

    report = checked(request)
    if out.as_json:
        out.document(report.document())
    else:
        out.show(Lines(list(lines(report))))
    return CODE_OF_STATUS[report.end.status]


def _limit(timeout: str) -> float:
    from sparktrain.config.quantities import seconds

    timeout_s = seconds(timeout, "--timeout")
    if timeout_s is None:
        raise SpecError("--timeout is none, and a check must end: pass a time, such as 2m")
    return timeout_s


def lines(report: "CheckReport") -> Iterator[str]:
    """The report as plain lines."""
    from sparktrain.base import formatting

    params = ", ".join(f"{name}={value!r}" for name, value in report.params.items())
    ended = f"ok, {report.end.seconds:.1f} s" if report.end.status == "ok" else report.end.status
    yield f"{report.function}({params}): {ended}"
    if report.end.problem:
        yield f"problem: {report.end.problem}"
    yield from report.end.traceback.rstrip().splitlines()
    yield from _answer(report)
    yield from _listed(
        "checkpoints", [f"step {step}, {formatting.size(size)}" for step, size in report.files.checkpoints.items()]
    )
    yield from _listed("files in ctx.log_dir", report.files.log_dir)
    if report.files.model_exported:
        yield "model: exported"
    if report.shipment.size_bytes:
        yield f"ships: {formatting.size(report.shipment.size_bytes)} to each agent"
    yield from _listed("  with", [f"{name}, {formatting.size(size)}" for name, size in report.shipment.files.items()])
    yield from _listed("reads", [f"{name}, {formatting.size(size)}" for name, size in report.shipment.captures.items()])
    preload = report.shipment.preload
    yield from _listed("imported before trials", [", ".join(preload)] if preload else [])
    if report.gang.backend is not None:
        yield f"backend: {report.gang.backend} ({report.gang.reason})"
    if report.gang.mirrored:
        yield f"ran as rank 0 of {report.workers}, as if the other members had the same values"
    yield from (f"Keras under a strategy: {feature}" for feature in report.keras_unsupported)
    yield from (f"notice: {notice}" for notice in report.notices)
    yield from (f"hint: {hint}" for hint in report.hints)


def _answer(report: "CheckReport") -> Iterator[str]:
    shown = [f"step {row['step']}: {_metrics(row['metrics'])}" for row in report.answer.reports]
    yield from _listed("reports", shown) if shown else ["reports: nothing"]
    if report.answer.result is not None:
        yield f"returns: {_metrics(report.answer.result) or 'nothing'}"
        if report.answer.metric is not None:
            yield f"metric: {report.answer.metric!r} is there"


def _metrics(metrics: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
    )


def _listed(title: str, entries: list[str]) -> Iterator[str]:
    yield from (f"{title}: {entry}" for entry in entries[:_SHOWN])
    if len(entries) > _SHOWN:
        yield f"{title}: and {len(entries) - _SHOWN} more"
