"""A run that is called once more after a correction: what stays, what is retried, and what has changed."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparktrain.display.progress import NullDisplay
from sparktrain.driver import launch
from sparktrain.driver.finish import finished
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import AttachedRun, attach
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.naming import take_name
from sparktrain.errors import ResumeError
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.search.space import grid
from sparktrain.usercode.code_changes import MOST_LINES
from sparktrain.usercode.target import resolve
from tests.support.run_stages import in_store, with_rules
from tests.unit.driver.drivers import NAME, World, prepared
from tests.unit.runs.test_history import TRIALS, attached, driven
from tests.unit.scripted import of_a_script


@pytest.fixture
def done() -> World:
    """A complete run with one failed trial."""
    world = World()
    driven(world, prepared(TRIALS))
    return world


def again(world: World, **rules: Any) -> AttachedRun:
    return attached(world, with_rules(prepared(TRIALS), **rules))


def calling(function: Callable[..., Any], world: World, **options: Any) -> AttachedRun:
    """The same call with another function."""
    asked = SweepOptions(metric="y", mode="max", name=NAME, backend="none", preload=[], seed=1, **options)
    return attach(in_store(compose(function, grid(x=list(range(TRIALS))), asked), world.store))


def test_a_complete_run_says_that_nothing_was_run(done: World) -> None:
    result = finished(again(done))
    assert result is not None
    assert nothing_run(result) == (
        "sweep: complete: nothing was run; 5 trials keep their results; 1 trial stays failed: "
        "retry_failed=True (--retry-failed) retries it"
    )
    stopped = replace(result, status=SweepStatus.STOPPED, trials=result.trials[:1])
    assert nothing_run(stopped) == "sweep: stopped before: nothing was run; 1 trial keeps its result"


class LineKeeper(NullDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def print_line(self, line: str) -> None:
        self.lines.append(line)


def test_it_says_so_to_whoever_called(done: World) -> None:
    display = LineKeeper()
    assert launch._finished(again(done), display) is not None
    assert display.lines[0].startswith("sweep: complete: nothing was run")
    assert launch._finished(again(done, retry_failed=True), display) is None
    assert len(display.lines) == 1


def test_a_run_that_goes_on_says_what_stays_and_what_is_run(done: World) -> None:
    lines = list(opening(again(done, retry_failed=True)))
    assert lines[0] == "sweep: resumes; 5 trials keep their results; 1 trial that failed is retried; 1 to run in all"
    more = with_rules(prepared(TRIALS + 3), allow_changed=frozenset({"space"}))
    assert next(iter(opening(attached(done, more)))) == (
        "sweep: resumes; 5 trials keep their results; 1 trial stays failed: retry_failed=True (--retry-failed) retries "
        "it; 3 to run in all"
    )


def test_other_code_is_shown_as_its_author_wrote_it_with_the_one_option_that_goes_on() -> None:
    scale = 2

    @of_a_script
    def helper(x: int) -> int:
        return x * scale

    @of_a_script
    def train(x: int) -> float:
        if x == 3:
            raise ValueError(x)
        return helper(x)

    world = World()
    take_name(calling(train, world))
    driven_world = World()
    driven(driven_world, calling(train, driven_world).call)
    scale = 3

    @of_a_script
    def train(x: int) -> float:  # type: ignore[no-redef]
        return helper(x)

    with pytest.raises(ResumeError) as caught:
        calling(train, driven_world)
    message = str(caught.value)
    assert "    -        if x == 3:\n    -            raise ValueError(x)\n" in message
    assert "    -scale = 2\n    +scale = 3\n" in message
    assert "pass retry_failed=True (--retry-failed) to retry the trial that failed with the new code" in message
    assert calling(train, driven_world, retry_failed=True).retry_failed
    with pytest.raises(ResumeError, match=r"(?s)^(?!.*retry_failed).*allow_changed='code'"):
        calling(train, world)  # nothing has failed


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., AttachedRun]]:
    """A call of the command line that rewrites its files each time."""
    names = {"rerun_train", "rerun_used", "rerun_other"}

    def call(world: World, **files: str) -> AttachedRun:
        for name in names:
            sys.modules.pop(name, None)
        for name, source in files.items():
            (tmp_path / f"rerun_{name}.py").write_text(source)
        target = resolve(f"{tmp_path / 'rerun_train.py'}:train")
        options = SweepOptions(metric="y", mode="max", name=NAME, backend="none", preload=[], seed=1)
        return attach(in_store(compose(target, grid(x=[1]), options), world.store))

    before = list(sys.path)
    yield call
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)


TRAIN = "import rerun_used\n\n\ndef train(x):\n    return rerun_used.twice(x)\n"
USED = "def twice(x):\n    return x + x\n"


def test_on_the_command_line_only_what_the_function_imports_is_its_code(program: Callable[..., AttachedRun]) -> None:
    world = World()
    take_name(program(world, train=TRAIN, used=USED, other="A = 1\n"))
    assert program(world, other="A = 2\n").stored_run is not None
    with pytest.raises(ResumeError) as caught:
        program(world, used=USED.replace("x + x", "2 * x"))
    assert (
        "code:\n    rerun_used.py\n    @@ -1,2 +1,2 @@\n     def twice(x):\n    -    return x + x\n"
        "    +    return 2 * x\n"
    ) in str(caught.value)


def test_a_long_difference_is_cut(program: Callable[..., AttachedRun]) -> None:
    world = World()
    take_name(program(world, train=TRAIN, used=USED))
    with pytest.raises(ResumeError) as caught:
        program(world, used=USED + "".join(f"A{number} = {number}\n" for number in range(100)))
    lines = str(caught.value).splitlines()
    assert len(lines) <= MOST_LINES + 5
    assert any(line.strip().startswith("... and 8") for line in lines)


def test_a_difference_is_told_though_the_code_of_then_is_gone(program: Callable[..., AttachedRun]) -> None:
    world = World()
    before = take_name(program(world, train=TRAIN, used=USED)).definition
    world.store.delete(before.layout.code(before.plan.code))
    with pytest.raises(ResumeError, match=r"rerun_used\.py"):
        program(world, used="def twice(x):\n    return 0\n")
