"""What an extension makes of a stored sweep, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import ExtendKeywords
from sparktrain.driver.continuation.extension import ExtendedRun, Extension
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import SpecError
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.runs.history import StoredRun
from sparktrain.search.space import single
from sparktrain.state.records import TrialsAdded
from tests.support.run_stages import named, owned, requested
from tests.unit.scripted import of_a_script


@of_a_script
def train(lr: float, **more: Any) -> float:
    return lr


MORE = settled(ExtendKeywords, {})
SAMPLED: dict[str, Any] = {
    "lr": st.loguniform(1e-4, 0.1),
    "n": st.randint(2, 8),
    "q": st.quniform(0, 1, 0.25),
    "act": st.choice(["relu", "gelu"]),
    "units": [16, 64],
    "z": st.normal(0, 1),
    "epochs": 10,
    "o": {"k": st.uniform(0, 1)},
}
GRID = {"lr": [0.1, 0.01], "units": [16, 64]}


def stored(space: Any, **options: Any) -> StoredRun:
    values = {"metric": "loss", "name": "old", "preload": [], **options}
    plan = compose(train, space, SweepOptions(**values)).definition.plan
    return StoredRun(plan, JournalContents((), 0, ()), None)


def extended(space: Any, more: int | None, wider: Any, **options: Any) -> ExtendedRun:
    return Extension(more, wider).of(stored(space, **options))


def test_a_sampled_sweep_gets_so_many_trials_more() -> None:
    made = extended(SAMPLED, 40, None, trials=60)
    assert (made.spec.trials, made.lines) == (100, ("is extended from 60 to 100 trials",))


def test_a_sweep_that_a_timeout_ends_gets_trials_beside_those_that_it_has() -> None:
    found = stored(SAMPLED, timeout=60)
    tried = TrialsAdded(cases=({"lr": 0.1},) * 7, exhausted=False, asked=7, observed=0)
    made = Extension(5).of(StoredRun(found.plan, JournalContents((tried,), 0, ()), None))
    assert (made.spec.trials, made.lines) == (12, ("is extended to 12 trials",))


@pytest.mark.parametrize(
    ("wider", "line"),
    [
        ({"lr": st.loguniform(1e-6, 1)}, "lr ~ loguniform(1e-06, 1), was loguniform(0.0001, 0.1)"),
        ({"n": st.randint(1, 8)}, "n ~ randint(1, 8), was randint(2, 8)"),
        ({"q": st.quniform(-0.5, 2, 0.25)}, "q ~ quniform(-0.5, 2, 0.25), was quniform(0, 1, 0.25)"),
        ({"act": st.choice(["relu", "gelu", "elu"])}, "act has also 'elu'"),
        ({"units": [16, 32, 64]}, "units has also 32"),
        ({"o": {"k": st.uniform(0, 2)}}, "o.k ~ uniform(0, 2), was uniform(0, 1)"),
    ],
)
def test_a_space_grows_by_the_parameters_that_are_named(wider: Any, line: str) -> None:
    made = extended(SAMPLED, 1, wider, trials=2)
    assert made.lines == ("is extended from 2 to 3 trials", line)
    assert made.space.names == tuple(SAMPLED)


@pytest.mark.parametrize(
    ("wider", "message"),
    [
        (
            {"lr": st.loguniform(1e-3, 1)},
            r"^lr was loguniform\(0.0001, 0.1\), and loguniform\(0.001, 1\) does",
        ),
        ({"lr": st.uniform(0, 1)}, r"^lr is of kind loguniform, and would be of kind uniform"),
        ({"n": st.randint(2, 7)}, r"^n was randint\(2, 8\)"),
        ({"q": st.quniform(0, 1, 0.1)}, r"^q was quniform"),
        ({"q": st.quniform(-0.1, 1, 0.25)}, r"the steps of quniform\(-0.1, 1, 0.25\) miss its values"),
        ({"act": st.choice(["relu", "elu"])}, r"^act no longer has 'gelu'"),
        ({"units": [16]}, r"^units no longer has 64"),
        ({"z": st.normal(0, 2)}, r"^z was normal\(0, 1\)"),
        ({"lrr": st.uniform(0, 1)}, r"^the space has no parameter 'lrr'; did you mean 'lr'"),
        ({"o": {"k": st.uniform(0, 1), "j": st.uniform(0, 1)}}, r"^the space has \['k', 'j'\] in place of \['k'\]"),
        (st.space({**SAMPLED, "epochs": 20}), r"^epochs was 10, and 20"),
        (st.space({name: each for name, each in SAMPLED.items() if name != "n"}), r"^the space no longer has 'n'"),
        (st.grid(lr=[1]), r"^the space is a sampled space, and would be a grid"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_way_out(wider: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        extended(SAMPLED, 1, wider, trials=2)
    assert "warm_start=" in str(caught.value)


def test_a_grid_gets_values_and_no_number_of_trials() -> None:
    made = extended(GRID, None, {"lr": [0.1, 0.01, 0.001]})
    assert (made.spec.trials, made.lines, str(made.space)) == (None, ("lr has also 0.001",), "grid of 3 lr x 2 units")
    assert extended(GRID, 2, None, trials=1).spec.trials == 3
    listed = extended([{"lr": 1}], None, [{"lr": 1}, {"lr": 2}])
    assert listed.lines == ("its list has 1 case more",)
    for trials, wider, message in (
        (5, None, r"trials \(5\): old runs every combination"),
        (None, None, r"^old runs every combination of its space: pass space="),
        (None, {"lr": [0.1, 0.01]}, r"^old runs every combination of its space: pass space="),
        (None, {"lr": st.uniform(0, 1)}, r"^the space is a grid, and lr ~ uniform\(0, 1\) has distributions"),
    ):
        with pytest.raises(SpecError, match=message):
            extended(GRID, trials, wider)
    with pytest.raises(SpecError, match=r"no longer has \{'lr': 1\}"):
        extended([{"lr": 1}], None, [{"lr": 2}])


def test_a_sampled_sweep_needs_a_number_a_run_and_ranges_of_cmaes_stay(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"pass how many trials old gets"):
        extended(SAMPLED, None, {"lr": st.loguniform(1e-6, 1)}, trials=2)
    numbers = {"lr": st.uniform(0, 1), "m": st.uniform(0, 1)}
    with pytest.raises(SpecError, match=r"sampler='cmaes' keeps to the ranges"):
        extended(numbers, 4, {"m": st.uniform(0, 2)}, trials=2, sampler="cmaes")
    assert extended(numbers, 4, None, trials=2, sampler="cmaes").spec.trials == 6
    gang = owned(compose(train, single({"lr": 1}), RunOptions(workers=1, dir=str(tmp_path), name="gang", preload=[])))
    with pytest.raises(SpecError, match=r"gang is a run of one gang, only a sweep can be extended"):
        compose_again(gang.definition.where, MORE, Extension(4))


def test_conditions_are_not_stored_so_the_whole_space_is_needed() -> None:
    def space(high: float) -> st.Space:
        return st.space(lr=st.uniform(0, high), m=st.when(lambda p: p["lr"] > 0.5, st.uniform(0, high)))

    with pytest.raises(SpecError, match="conditions"):
        extended(space(1), 4, None, trials=2)
    made = extended(space(1), 4, space(2), trials=2)
    assert made.lines[1:] == ("lr ~ uniform(0, 2), was uniform(0, 1)", "m ~ uniform(0, 2), was uniform(0, 1)")


def test_what_ended_the_sweep_does_not_end_it_at_once_again() -> None:
    made = extended(SAMPLED, 40, None, trials=60, target=0.1, budget="1h")
    assert (made.spec.target, made.spec.plateau, made.spec.budget_s) == (None, None, None)
    assert made.lines[-1] == "no longer ends by target, budget, which it was started with"


def test_a_driver_that_yarn_starts_again_extends_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SweepOptions(metric="loss", name="old", dir=str(tmp_path), trials=2, preload=[])
    first = named(compose(train, SAMPLED, options))

    def attempt(application: str, number: int) -> CheckedCall:
        monkeypatch.setenv("CONTAINER_ID", f"container_1_{application}_0{number}_000001")
        return compose_again(first.definition.where, MORE, Extension(3))

    work = requested(attempt("0001", 1))
    assert work.spec.trials == 5
    assert attempt("0001", 2).definition.spec.trials == 5, "the one before has recorded nothing"
    work.owned.journal.append([work.driver_started])
    again = attempt("0001", 2)
    assert (again.definition.spec.trials, again.notes) == (5, ("was extended by the driver that this one replaces",))
    assert attempt("0002", 1).definition.spec.trials == 8
