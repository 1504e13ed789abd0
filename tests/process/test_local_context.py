"""`local_context` gives a function the same results and files as the process of a member."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process import local_functions as functions
from tests.process.callers import Here, InMember, Seen


@pytest.fixture
def callers(zygote: ZygoteProcess, tmp_path: Path) -> tuple[Here, InMember]:
    """A caller in this process and one in a member, with a directory each."""
    (tmp_path / "member").mkdir()
    return Here(tmp_path / "here"), InMember(zygote, tmp_path / "member")


async def same(
    callers: tuple[Here, InMember], train: Callable[..., Any], params: Any, metric: str | None = None
) -> Seen:
    here, member = [await each.call(train, params, metric or None) for each in callers]
    assert here.failure == member.failure
    assert here == member
    return here


async def alike(zygote: ZygoteProcess) -> None:
    """Import Keras in both: its import draws random numbers, and checkpoints contain the generators."""
    assert await zygote.preload(("numpy", "keras", "tensorflow")) == {}
    importlib.import_module("keras")


async def test_reports_results_and_files_are_the_same(callers: tuple[Here, InMember]) -> None:
    seen = await same(callers, functions.plain, {"lr": 0.25, "shape": (3, 4)}, "accuracy")

    assert seen.metrics is not None
    assert (seen.metrics["accuracy"], seen.metrics["files"], seen.metrics["arguments"]) == (0.5, 0, 1)
    assert seen.reports == [(0, "{'loss': 1.5, 'accuracy': 0.0}"), (7, "{'loss': nan}")]
    assert seen.files["seen.json"] == '[0.25, [3, 4], 11, 0, 1, "chief", 0, 0, 1]'


@pytest.mark.parametrize(
    ("train", "params", "kind"),
    [
        (functions.without_context, {"lr": 2}, None),
        (functions.raises, {}, "exception"),
        (functions.exits, {}, "exit"),
        (functions.runs_out_of_memory, {}, "memory"),
        (functions.goes_back, {}, "exception"),
        (functions.reports_text, {}, "exception"),
        (functions.returns_text, {}, "result"),
        (functions.returns_more, {}, None),
        (functions.returns_other, {}, "metric"),
        (functions.diverges, {}, "metric"),
        (functions.opens_relative, {}, "exception"),
        (functions.sweeps, {}, "exception"),
        (functions.serves, {}, "exception"),
        (functions.misspells, {}, "exception"),
        (functions.plain, {"lr": 1}, "exception"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_the_end_of_a_function_is_the_same(
    callers: tuple[Here, InMember], train: Any, params: Any, kind: str | None
) -> None:
    seen = await same(callers, train, params, "accuracy")

    assert (None if seen.failure is None else seen.failure[0]) == kind


@pytest.mark.all(case="a loop resumes from the same checkpoints", covered_by="a fit resumes to the same weights")
async def test_a_loop_resumes_from_the_same_checkpoints(zygote: ZygoteProcess, callers: tuple[Here, InMember]) -> None:
    await alike(zygote)
    first = await same(callers, functions.counts, {"until": 6})
    second = await same(callers, functions.counts, {"until": 6})

    assert first.failure is not None
    assert [each[:2] for each in first.checkpoints] == [(1, 3), (1, 4)], "the newest two; the best is one of them"
    assert [step for step, _ in second.reports] == [5, 6]
    assert second.metrics is not None
    assert second.metrics["first"] == 4
    assert [each[:2] for each in second.checkpoints] == [(1, 3), (2, 5), (2, 6)]


async def test_operations_of_a_gang_of_one(callers: tuple[Here, InMember]) -> None:
    seen = await same(callers, functions.shares, {})

    assert seen.metrics == {"mean": 2.5, "sum": 3, "chief": 4, "lr": 0.5}


@pytest.mark.filterwarnings("default")  # Keras warns here as it does in a member, where nothing makes that an error
async def test_a_fit_resumes_to_the_same_weights(zygote: ZygoteProcess, callers: tuple[Here, InMember]) -> None:
    await alike(zygote)
    first = await same(callers, functions.fits, {"epochs": 4, "fail_after": 1}, "loss")
    second = await same(callers, functions.fits, {"epochs": 4, "fail_after": 1}, "loss")

    assert first.failure is not None
    assert first.checkpoints, "their digests are equal, to the last bit of the weights"
    assert [[step for step, _ in each.reports] for each in (first, second)] == [[0, 1], [1, 2, 3]]
    assert second.metrics is not None
    assert second.files["model"] == "True"


def test_a_debugger_stops_in_the_function(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from sparktrain.testing import local_context\n"
        "def train(lr, ctx):\n"
        "    breakpoint()\n"
        "    return lr * 2\n"
        "with local_context({'lr': 4}) as ctx:\n"
        "    print('returned', ctx.call(train))\n"
    )
    commands = "p lr + 100\np ctx.rank\ncontinue\n"

    done = subprocess.run([sys.executable, program], input=commands, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "104" in done.stdout
    assert "returned {'result': 8.0}" in done.stdout
