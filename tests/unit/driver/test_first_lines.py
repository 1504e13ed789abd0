"""The first lines of a run: what proposes its trials, and what is other than under the drivers before."""

from pathlib import Path
from typing import Any

import optuna

from sparktrain.config.distribution import uniform
from sparktrain.driver.first_lines import opening
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Suggestion
from sparktrain.search.space import single
from sparktrain.search.study_sampler import StudySampler
from tests.support.run_stages import named
from tests.unit.scripted import of_a_script


@of_a_script
def train(x: float = 0.0) -> float:
    return x


class Mine:
    """A sampler of a user."""

    def suggest(self, count: int) -> Suggestion:
        return Suggestion((), True)

    def observe(self, observation: Any) -> None:
        """Nothing is learnt."""

    def restore(self, history: Any) -> None:
        """Nothing is kept."""


def prepared(folder: Path, high: float = 1.0, **given: Any) -> CheckedCall:
    options = SweepOptions(
        metric="y", mode="max", name="r", dir=str(folder), trials=4, preload=[], seed=1, backend="none", **given
    )
    return compose(train, space(x=uniform(0, high)), options)


def test_an_object_and_a_study_are_named_by_what_they_are(tmp_path: Path) -> None:
    lines = list(opening(attach(prepared(tmp_path, sampler=Mine()))))
    assert lines[0] == "r: the sampler tests.unit.driver.test_first_lines.Mine proposes x ~ uniform(0, 1)"
    study = optuna.create_study(study_name="mnist", sampler=optuna.samplers.RandomSampler(seed=0))
    options = SweepOptions(metric="value", mode="max", name="s", dir=str(tmp_path), preload=[], trials=2,
                           sampler=StudySampler(study, 2))  # fmt: skip
    first, *_ = opening(attach(compose(train, single({}), options)))
    assert first == "s: study 'mnist' (RandomSampler, MedianPruner) proposes the parameters that each trial asks for"


def test_another_sampler_and_another_space_are_explained(tmp_path: Path) -> None:
    named(prepared(tmp_path, sampler="tpe"))
    same = list(opening(attach(prepared(tmp_path, sampler="tpe"))))
    assert same[:2] == ["r: resumes; 4 to run in all", "r: tpe proposes x ~ uniform(0, 1)"]
    other = list(opening(attach(prepared(tmp_path, 2.0, sampler=Mine(), allow_changed="space"))))
    assert other[1:3] == [
        "r: another sampler: the sampler tests.unit.driver.test_first_lines.Mine proposes what is left to run, and "
        "knows the results of tpe",
        "r: another space, as allow_changed allows: trials with a result keep it, the others are of the new space",
    ]


def test_what_each_trial_imports_itself_is_named_with_its_cost(tmp_path: Path) -> None:
    @of_a_script
    def frames(x: float = 0.0) -> float:
        import polars

        return float(polars.Series([x]).sum())

    options = SweepOptions(metric="y", mode="max", name="r", dir=str(tmp_path), trials=4, seed=1)
    first, *_ = opening(attach(compose(frames, space(x=uniform(0, 1)), options)))
    assert first == "r: polars (0.5 s) is imported in each trial: it starts a thread on import, which a fork loses"
    named = SweepOptions(metric="y", mode="max", name="n", dir=str(tmp_path), trials=4, seed=1, preload=["polars"])
    lines = list(opening(attach(compose(frames, space(x=uniform(0, 1)), named))))
    assert not [line for line in lines if "polars" in line]
