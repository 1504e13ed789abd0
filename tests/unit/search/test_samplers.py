"""Samplers of Optuna and of users: the contract, refusals, and what a space's lists and conditions make of them."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import optuna
import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import choice, lograndint, loguniform, normal, quniform, randint, uniform
from sparktrain.config.sampler_names import SAMPLERS
from sparktrain.errors import SpecError
from sparktrain.search import named_samplers
from sparktrain.search.named_samplers import SamplerChoice, stored_choice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import Space, cases, grid, when, zipped

NUMBERS = space(lr=loguniform(1e-5, 1), d=uniform(0, 0.5), n=lograndint(16, 256), z=normal(0, 0.1), u=[1, [2], 3])
MIXED = space(
    lr=loguniform(1e-5, 1),
    q=quniform(0, 1, 0.1),
    z=normal(0, 1),
    e=10,
    o={"name": choice(["sgd", "adam"]), "k": [1, 2]},
)
CONDITIONS = space(
    o=choice(["sgd", {"adam": 1}]),
    momentum=when(lambda p: p["o"] == "sgd", uniform(0, 0.99), otherwise=0.0),
    layers=when(lambda p: p["o"] != "sgd", [1, 2]),
    lr=loguniform(1e-5, 1),
    where=lambda p: p["lr"] < 0.1 or p["momentum"] > 0.5,
)
DISCRETE = space(a=choice([1, 2, 3]), b=randint(1, 3))
HIGH = Goal("y", True)


def chosen(name: Any, over: Space, trials: int | None = 24, seed: int = 5, slots: int = 3, **more: Any) -> Sampler:
    return SamplerChoice(requested=name, trials=trials, seed=seed, goal=HIGH, **more).sampler(over, slots)


def suggestions(sampler: Sampler, count: int) -> list[dict[str, Any]]:
    """Cases one after the other, each with a result."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        for case in sampler.suggest(1).cases:
            sampler.observe(
                Observation(TrialId(len(found)), case, ObservedStatus.SUCCEEDED, {"y": float(len(found) % 7)})
            )
            found.append(case)
    return found


class Halving:
    """A sampler of a user."""

    learns = True
    total = 12

    def __init__(self) -> None:
        self.made = 0
        self.centre = 0.5

    def suggest(self, count: int) -> Suggestion:
        found = []
        while len(found) < count and self.made < self.total:
            found.append({"x": self.centre + 0.5**self.made})
            self.made += 1
        return Suggestion(tuple(found), self.made >= self.total)

    def observe(self, observation: Observation) -> None:
        self.centre += observation.metrics.get("y", 0.0) / 10

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        for each in history:
            if isinstance(each, PastSuggestion):
                self.made += len(each.cases)
            else:
                self.observe(each)


# ---- spaces


def test_lists_beside_distributions_are_a_grid_in_a_circle() -> None:
    for name in ("random", "tpe", "cmaes", "qmc", "nsgaii"):
        found = suggestions(chosen(name, NUMBERS), 12)
        assert [case["u"] for case in found] == [1, [2], 3] * 4, name
        assert len({case["lr"] for case in found}) == 12 or name == "nsgaii", "a child has values of its parents"


def test_the_sampler_knows_the_values_of_lists() -> None:
    """A list decides on the result: what follows depends on its values."""
    far = space(x=uniform(0, 1), u=[0, 1])
    first, second = (chosen("tpe", far) for _ in range(2))
    for sampler, sign in ((first, 1), (second, -1)):
        for number in range(20):
            (case,) = sampler.suggest(1).cases
            y = float(sign * case["u"])
            sampler.observe(Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, {"y": y}))
    assert first.suggest(4).cases != second.suggest(4).cases


def test_conditions_and_constants_hold_in_every_case() -> None:
    for case in suggestions(chosen("tpe", CONDITIONS), 24):
        assert (case["momentum"] == 0.0) == (case["o"] != "sgd")
        assert ("layers" in case) == (case["o"] != "sgd")
        assert case["lr"] < 0.1 or case["momentum"] > 0.5
    assert {case["e"] for case in suggestions(chosen("tpe", MIXED), 20)} == {10}


def test_a_case_is_repeated_only_when_few_are_left() -> None:
    found = Counter(json.dumps(case) for case in suggestions(chosen("random", DISCRETE), 9))
    assert len(found) >= 8
    assert len(suggestions(chosen("random", DISCRETE, trials=30), 30)) == 30, "repeated cases are accepted in the end"


def test_a_combination_of_lists_that_a_condition_refuses_is_left_out() -> None:
    narrow = space(a=[1, 2], b=[1, 2], x=uniform(0, 1), where=lambda p: (p["a"], p["b"]) != (1, 2))
    found = [(case["a"], case["b"]) for case in suggestions(chosen("tpe", narrow), 8)]
    assert set(found) == {(1, 1), (2, 1), (2, 2)}


def test_where_a_sampler_finds_nothing_a_case_is_drawn() -> None:
    rare = space(x=uniform(0, 1), y=uniform(0, 1), where=lambda p: p["x"] < 0.004)
    for name in ("random", "tpe"):
        assert all(case["x"] < 0.004 for case in suggestions(chosen(name, rare), 3))


def test_a_condition_that_refuses_everything_later_is_an_error_that_names_it() -> None:
    left = iter([True])
    fading = space(x=uniform(0, 1), where=lambda p: next(left, False))
    with pytest.raises(SpecError, match=r"space\(where=...\) has refused .* in a row, of x ~ uniform\(0, 1\), where"):
        chosen("random", fading).suggest(1)


def test_values_are_within_their_distributions() -> None:
    for name in ("random", "tpe", "qmc", "nsgaii"):
        for case in suggestions(chosen(name, MIXED), 20):
            assert MIXED.chosen(case) is not None
            assert 1e-5 <= case["lr"] <= 1
            assert case["q"] in [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_more_trials_continue_with_what_was_learned() -> None:
    history: list[PastSuggestion | Observation] = []
    first = chosen("tpe", NUMBERS, trials=20)
    for number in range(20):
        made = first.suggest(1)
        end = Observation(TrialId(number), made.cases[0], ObservedStatus.SUCCEEDED, {"y": made.cases[0]["d"]})
        history += [PastSuggestion(TrialId(number), made.cases, made.exhausted, made.memo), end]
        first.observe(end)
    assert made.exhausted
    more, whole = chosen("tpe", NUMBERS, trials=25), chosen("tpe", NUMBERS, trials=25)
    more.restore(history)
    whole.restore(history)
    assert more.suggest(5) == whole.suggest(5)
    fresh = chosen("tpe", NUMBERS, trials=25)
    assert more.suggest(1).cases != fresh.suggest(1).cases


def test_trials_that_still_run_are_known_to_the_sampler() -> None:
    """Only a running trial differs: TPE counts it as a bad one, where it is."""
    over = space(x=uniform(0, 1))
    history: list[PastSuggestion | Observation] = []
    for number in range(20):
        case = {"x": number / 20}
        history.append(PastSuggestion(TrialId(number), (case,), False))
        y = -abs(case["x"] - 0.5)
        history.append(Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, {"y": y}))
    found = []
    for running in (0.5, 0.9):
        sampler = chosen("tpe", over, trials=60)
        sampler.restore([*history, *(PastSuggestion(TrialId(20 + n), ({"x": running},), False) for n in range(10))])
        found.append(sampler.suggest(4).cases)
    assert found[0] != found[1]


def test_the_memo_of_another_sampler_is_no_obstacle() -> None:
    case = suggestions(chosen("random", NUMBERS), 1)[0]
    memo = {"trials": 7, "study": "mine", "state": [1]}
    for name in ("tpe", "cmaes", "qmc", "nsgaii", "grid"):
        sampler = chosen(name, NUMBERS if name != "grid" else DISCRETE)
        sampler.restore([PastSuggestion(TrialId(0), (case, case), False, memo)])
        assert sampler.suggest(1).cases


# ---- refusals


@pytest.mark.parametrize(
    ("asked", "over", "trials", "text"),
    [
        ("cmaes", MIXED, 20, r"cmaes' samples numbers alone, and 'o.name' is a choice: use sampler='tpe'"),
        ("cmaes", space(x=uniform(0, 1)), 20, "needs two distributions at least, and the space has 1"),
        ("cmaes", CONDITIONS, 20, "cannot do conditions, and 'momentum' has one: use sampler='tpe' or 'random'"),
        ("qmc", CONDITIONS, 20, "'qmc' cannot do conditions"),
        ("grid", MIXED, None, "'lr' is .*loguniform.*, which has no list of values: use sampler='random'"),
        ("tpe", MIXED, None, r"'tpe' has no end, .*pass trials=N"),
        ("tpe", zipped(a=[1, 2]), 2, "chooses each parameter by itself.* is a zip of a: use sampler='grid'"),
        ("random", cases([{"a": 1}]), 2, "the space is a list of 1 case"),
    ],
)  # fmt: skip
def test_a_sampler_that_cannot_do_the_space_is_refused_with_one_that_can(
    asked: str, over: Space, trials: int | None, text: str
) -> None:
    with pytest.raises(SpecError, match=text):
        chosen(asked, over, trials)


def test_a_sampler_that_learns_needs_a_metric() -> None:
    for name in ("tpe", "cmaes", "nsgaii"):
        with pytest.raises(SpecError, match=f"'{name}' learns from results, and the sweep has no metric: pass metric="):
            SamplerChoice(requested=name, trials=5).sampler(NUMBERS)
    assert SamplerChoice(trials=5).name(NUMBERS) == "random"
    assert SamplerChoice(trials=5, goal=HIGH).name(NUMBERS) == "tpe"
    assert SamplerChoice(trials=5, goal=HIGH).name(grid(a=[1])) == "grid"


@pytest.mark.parametrize(
    ("missing", "asked", "text"),
    [
        ("optuna", "tpe", r"sampler='tpe' needs optuna, .*pip install 'sparktrain\[search\]'"),
        ("cmaes", "cmaes", r"needs cmaes, .*sparktrain\[search\]"),
        ("scipy", "qmc", r"needs scipy, .*sparktrain\[search\]"),
        ("torch", "gp", r"sampler='gp' needs torch, .*sparktrain\[gp\]"),
    ],
)
def test_a_missing_package_is_named_before_the_run_starts(
    missing: str, asked: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_samplers, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(SpecError, match=text):
        chosen(asked, NUMBERS)


def test_gaussian_processes_are_refused_for_many_trials_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_samplers, "find_spec", lambda name: object())
    chosen("gp", MIXED, trials=300)
    for trials in (301, None):
        with pytest.raises(SpecError, match=r"7 s after 300 trials.*third power.*300 is the most.*sampler='tpe'"):
            chosen("gp", MIXED, trials=trials, timeout_s=60.0)


def test_a_time_limit_is_an_end_too() -> None:
    sampler = chosen("tpe", MIXED, trials=None, timeout_s=60.0)
    assert sampler.total is None
    assert not sampler.suggest(2).exhausted


def test_the_sampler_of_an_object_is_not_stored() -> None:
    name = SamplerChoice(requested=optuna.samplers.TPESampler(seed=1), trials=3, goal=HIGH).name(MIXED)
    with pytest.raises(SpecError, match=r"was an object \(optuna.samplers.*TPESampler\), .*the same call as before"):
        stored_choice(name)
    assert [stored_choice(each) for each in SAMPLERS] == list(SAMPLERS)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, r"returned None \(NoneType\); return sparktrain.Suggestion"),
        (Suggestion(({"x": 1}, {"x": 2}), False), r"suggest\(1\) of the sampler returned 2 cases; return 1 at most"),
        (Suggestion(({"x": object()},), False), "case 0 of the sampler: 'x'"),
        (Suggestion(({"lambda": 1},), False), "case 0 of the sampler: 'lambda' cannot be the name"),
        (Suggestion(({"x": 1},), False, {"rng": object()}), "the memo of the sampler's suggestion"),
    ],
)
def test_what_a_sampler_of_a_user_returns_is_checked(returned: Any, text: str) -> None:
    own = Halving()
    own.suggest = lambda count: returned  # type: ignore[method-assign]
    with pytest.raises(SpecError, match=text):
        chosen(own, grid(x=[1])).suggest(1)


# ---- cost


class Ending(optuna.samplers.RandomSampler):
    """Stops its study when it has had three results."""

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        if trial.number == 2:
            study.stop()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # of the brute force
@pytest.mark.parametrize(
    ("make", "trials"),
    [
        (lambda: Ending(seed=1), 3),
        (lambda: optuna.samplers.BruteForceSampler(seed=1), 4),
        (lambda: optuna.samplers.GridSampler({"x": [1, 2]}), 2),
    ],
    ids=["of a user", "brute force", "grid"],
)
def test_a_sampler_of_optuna_that_stops_its_study_ends_the_sweep(make: Any, trials: int) -> None:
    sampler = SamplerChoice(requested=make(), trials=20, goal=Goal("y", True)).sampler(space(x=randint(1, 4)))
    cases: list[dict[str, Any]] = []
    while not (asked := sampler.suggest(1)).exhausted:
        (case,) = asked.cases
        cases.append(case)
        sampler.observe(Observation(TrialId(len(cases) - 1), case, ObservedStatus.SUCCEEDED, {"y": 1.0}))
    assert len(cases) == trials


def test_a_grid_of_optuna_in_a_space_with_lists_is_refused_with_its_replacement() -> None:
    choice = SamplerChoice(requested=optuna.samplers.GridSampler({"x": [1], "y": [1]}), trials=2, goal=Goal("y", True))
    with pytest.raises(SpecError, match=r"space has the list 'y', with values that are all tried: use sampler='grid'"):
        choice.sampler(space(x=randint(1, 4), y=[1, 2]))
