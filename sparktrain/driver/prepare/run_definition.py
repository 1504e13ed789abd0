"""What a run is, from its call to its end."""

from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.protocol.messages import Code
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import StoredRun, past
from sparktrain.runs.plan import Plan, spec_fields
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampler import Sampler
from sparktrain.search.space import Space
from sparktrain.store.base import Store


@dataclass(frozen=True, kw_only=True)
class RunDefinition:
    """The plan of a run, which its directory stores, with the objects that the plan describes."""

    plan: Plan
    spec: SweepSpec
    space: Space
    code: Code
    store: Store
    layout: RunLayout
    sampler: Any = None
    """The sampler that the call names: a name, an object, or None."""

    @property
    def where(self) -> str:
        """The run directory, for display."""
        return self.store.where(self.layout.path)

    @property
    def documents(self) -> dict[str, Any]:
        """The descriptions of the datasets that the run has."""
        return {} if self.plan.data is msgspec.UNSET else self.plan.data

    def with_plan(self, **fields: Any) -> Self:
        """The same with other `fields` of its plan."""
        return replace(self, plan=msgspec.structs.replace(self.plan, **fields))

    def with_spec(self, spec: SweepSpec) -> Self:
        """The same with another specification, also in its plan."""
        return replace(self.with_plan(spec=spec_fields(spec)), spec=spec)

    def new_sampler(self, slots: int = 1) -> Sampler:
        """The sampler of the run at its start, for so many trials at a time."""
        return sampler_choice(self.sampler, self.spec).sampler(self.space, slots)

    def count_cases(self, stored_run: StoredRun | None = None) -> int | None:
        """Number of sets of parameters, with those that `stored_run` has; None where that is not known.

        Walks over the space; raises where a condition does.
        """
        sampler = self.new_sampler()
        if isinstance(sampler, SpaceSampler) and stored_run is not None:
            sampler.restore(past(stored_run.opened.records, self.spec.metric))
        return sampler.total


def sampler_choice(sampler: Any, spec: SweepSpec) -> SamplerChoice:
    """What decides on the sampler of a run, where its call names `sampler`."""
    goal = Goal(spec.metric, spec.mode == "max", spec.other_metrics, spec.constraints)
    return SamplerChoice(requested=sampler, trials=spec.trials, timeout_s=spec.timeout_s, seed=spec.seed, goal=goal)
