"""Sweeps that sample, on this machine: samplers of Optuna and of a user, resumed and stopped."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

import sparktrain as st

SPACE = {"x": st.uniform(0, 1), "kind": st.choice(["a", "b"]), "scale": [1, 2], "o": {"n": 3}}


def parabola(x: float, kind: str, scale: int, o: dict[str, int]) -> dict[str, float]:
    assert o == {"n": 3}
    return {"y": scale * (x - 0.3) ** 2 + (kind == "b")}


def line(x: float) -> dict[str, float]:
    return {"y": x}


AGENTS = (1,)
"""One warm agent: trials come one after the other."""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {
        "metric": "y", "mode": "min", "dir": str(tmp_path), "name": "s", "seed": 1, "preload": [], "progress": False,
        "backend": "none",
    }  # fmt: skip


def test_a_search_continues_in_the_next_call_and_from_its_directory(options: dict[str, Any], tmp_path: Path) -> None:
    first = st.sweep(parabola, SPACE, trials=4, spark=st.local(slots=2), **options)
    assert [trial.status for trial in first.trials] == ["succeeded"] * 4
    assert [trial.params["scale"] for trial in first.trials] == [1, 2, 1, 2]
    more = st.sweep(parabola, SPACE, trials=7, spark=st.local(slots=2), **options)
    assert [trial.params for trial in more.trials[:4]] == [trial.params for trial in first.trials]
    assert len({trial.params["x"] for trial in more.trials}) == 7
    again = st.resume(str(tmp_path / "s"), spark=st.local(slots=1), progress=False)
    assert isinstance(again, st.SweepResult)
    assert [trial.params for trial in again.trials] == [trial.params for trial in more.trials]


def test_one_slot_and_one_seed_give_the_same_search_twice(pool: st.Pool, options: dict[str, Any]) -> None:
    found = [pool.sweep(parabola, SPACE, trials=6, **(options | {"name": name})) for name in ("a", "b")]
    assert [trial.params for trial in found[0].trials] == [trial.params for trial in found[1].trials]


def test_two_searches_at_once_are_as_if_alone(options: dict[str, Any]) -> None:
    def search(name: str, found: dict[str, Any]) -> None:
        made = st.sweep(line, {"x": st.uniform(0, 1)}, sampler="qmc", trials=4, spark=st.local(slots=1),
                        **(options | {"name": name}))  # fmt: skip
        found[name] = [trial.params for trial in made.trials]

    found: dict[str, Any] = {}
    threads = [threading.Thread(target=search, args=(name, found)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found["a"] == found["b"]
    assert len(found["a"]) == 4


def test_an_object_of_optuna_is_restored_by_the_same_call_alone(
    pool: st.Pool, options: dict[str, Any], tmp_path: Path
) -> None:
    space = {"x": st.uniform(0, 1)}
    for trials in (3, 5):
        sampler = optuna.samplers.RandomSampler(seed=3)
        made = pool.sweep(line, space, sampler=sampler, trials=trials, **options)
        assert len({trial.params["x"] for trial in made.trials}) == trials, "it does not repeat itself"
    with pytest.raises(st.SpecError, match=r"was an object .*RandomSampler.*the same call"):
        st.resume(str(tmp_path / "s"), spark=st.local(slots=1), progress=False)


class Broken:
    """A user's sampler with a mistake after two cases."""

    learns = True
    total = 4

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.made = 0

    def suggest(self, count: int) -> st.Suggestion:
        if self.made >= 2 and self.broken:
            raise LookupError("no third case")
        self.made += 1
        return st.Suggestion(({"x": self.made / 10},), exhausted=self.made == self.total)

    def observe(self, observation: st.Observation) -> None:
        """Learns nothing."""

    def restore(self, history: Sequence[st.PastSuggestion | st.Observation]) -> None:
        self.made = sum(len(each.cases) for each in history if isinstance(each, st.PastSuggestion))


def test_a_sampler_that_raises_ends_its_sweep_which_a_corrected_one_resumes(
    pool: st.Pool, options: dict[str, Any]
) -> None:
    space = {"x": [0.0]}
    with pytest.raises(st.SamplerError, match=r"raised LookupError .*no third case") as raised:
        pool.sweep(line, space, sampler=Broken(True), **options)
    assert 'raise LookupError("no third case")' in str(raised.value)
    made = pool.sweep(line, space, sampler=Broken(False), **options)
    assert [trial.params["x"] for trial in made.trials] == [0.1, 0.2, 0.3, 0.4]
    assert made.status == "succeeded"


def test_a_sampler_that_cannot_be_restored_is_named(pool: st.Pool, options: dict[str, Any]) -> None:
    class Forgetful(Broken):
        def restore(self, history: Sequence[st.PastSuggestion | st.Observation]) -> None:
            raise StopIteration("what history?")

    with pytest.raises(st.SamplerError, match="raised StopIteration when it was given what earlier drivers had"):
        pool.sweep(line, {"x": [0.0]}, sampler=Forgetful(False), **options)
    made = pool.sweep(line, {"x": [0.0]}, sampler=Broken(False), **options)
    assert len(made.trials) == 4


def test_the_first_lines_name_sampler_and_space(
    pool: st.Pool, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    pool.sweep(line, {"x": st.uniform(0, 1)}, trials=1, **(options | {"progress": True}))
    assert "s: tpe proposes x ~ uniform(0, 1)" in "".join(capfd.readouterr())
