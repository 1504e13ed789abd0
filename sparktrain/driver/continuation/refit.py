"""A gang that trains the parameters of a sweep's best trial on: longer, wider, from its checkpoint."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from sparktrain.base.ids import TrialId
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import RefitKeywords
from sparktrain.config.param_values import shown
from sparktrain.driver.continuation.program import StoredProgram
from sparktrain.driver.data.data_plan import DataPlan, check_share
from sparktrain.driver.data.run_data import stored_data
from sparktrain.driver.options import RunOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import ResumeError, SpecError
from sparktrain.protocol.messages import Code
from sparktrain.results.run_result import RunResult
from sparktrain.results.stored_result import load
from sparktrain.runs import plan as plans
from sparktrain.runs.history import look
from sparktrain.runs.locate import RunLocation, run_in
from sparktrain.runs.next_commands import STREAM
from sparktrain.runs.plan import Origin, Plan, RefitTrial
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.space import single
from sparktrain.state.checkpoint_history import Checkpoint


class Winner(NamedTuple):
    """The trial of a sweep that is trained on, with what its run directory has of it."""

    place: RunLocation
    plan: Plan
    code: Code
    trial: TrialResult
    checkpoint: Checkpoint | None

    def data(self, overrides: Collection[str]) -> DataPlan:
        """The datasets that the sweep has stored, without those that `overrides` names. Blocks on the store.

        Raises DataError.
        """
        documents = {} if self.plan.data is msgspec.UNSET else self.plan.data
        inherited = {name: document for name, document in documents.items() if name not in overrides}
        return stored_data(inherited, self.place.store, self.place.layout)

    def defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Metric and directory of the sweep, for its run, where `options` has none."""
        of_sweep = {name: self.plan.spec[name] for name in ("metric", "mode") if self.plan.spec["metric"] is not None}
        is_same_metric = "metric" not in options or options["metric"] == self.plan.spec["metric"]
        defaults = {"dir": self.place.store.where(), **(of_sweep if is_same_metric else {})}
        return {name: value for name, value in defaults.items() if name not in options}


@dataclass(frozen=True)
class Refit:
    """What a call of `refit` asks for."""

    directory: str
    trial: int | None = None
    """The number of the trial; None for the best one."""
    checkpoint: str = "newest"
    """`newest`, `best`, or `none` for a start at step 0."""

    def winner(self) -> Winner:
        """The trial and its checkpoint. Blocks on the store.

        Raises NoBestTrialError; SpecError for a trial or a run that is none; RunDirectoryError.
        """
        place = run_in(self.directory)
        result = load(self.directory)
        stored = look(place.store, place.layout)
        if stored is None or isinstance(result, RunResult):
            raise SpecError(f"{self.directory} holds no sweep: pass the directory of a sweep; `resume` continues a run")
        if self.trial is None:
            trial = result.best
        else:
            matches = [candidate for candidate in result.trials if candidate.id == self.trial]
            if not matches:
                raise SpecError(f"trial ({self.trial}) must be one of the {len(result.trials)} of {self.directory}")
            trial = matches[0]
        history = stored.sweep().trials[TrialId(trial.id)].checkpoints
        chosen = {"newest": history.newest, "best": history.best or history.newest, "none": None}[self.checkpoint]
        code = plans.read_code(place.store, place.layout, stored.plan.code)
        return Winner(place=place, plan=stored.plan, code=code, trial=trial, checkpoint=chosen)

    def checked(
        self, winner: Winner, params: Mapping[str, Any], options: RunOptions, train: Callable[..., Any] | None = None
    ) -> CheckedCall:
        """The run of one gang, with `params` in place of the trial's, of the stored function or of `train`."""
        if train is None:
            _check_given(winner.plan, options)
        stored = winner.data(options.keywords.data)
        program = StoredProgram(winner.plan, winner.code) if train is None else train
        call = compose(program, single({**winner.trial.params, **params}), options)
        call = _with_data(replace(call, notes=(*call.notes, self._line(winner, params))), stored)
        if winner.checkpoint is None:
            trial = RefitTrial(directory=winner.place.where, trial=winner.trial.id)
            return replace(call, definition=call.definition.with_plan(refit=trial))
        origin = Origin(directory=winner.place.where, trial=winner.trial.id, checkpoint=winner.checkpoint)
        return replace(call, definition=call.definition.with_plan(origin=origin))

    def _line(self, winner: Winner, params: Mapping[str, Any]) -> str:
        changed = ", ".join(f"{name}={shown(value, 40)}" for name, value in params.items())
        summary = f"trains trial {winner.trial.id} of {winner.place.where} on{f' with {changed}' if changed else ''}"
        if winner.checkpoint is not None:
            return f"{summary}, from its checkpoint of step {winner.checkpoint.step}"
        why = "as was asked" if self.checkpoint == "none" else "it has no checkpoint"
        return f"{summary}, from step 0: {why}"


def _with_data(call: CheckedCall, stored: DataPlan) -> CheckedCall:
    """The run, which reads the stored data of the sweep beside what its call passes. Raises DataError."""
    # The sweep may have had trials of one member; a gang needs a row for each of its workers.
    for name, manifest in stored.manifests.items():
        check_share(manifest.rows, call.definition.spec.gang.workers, f"data[{name!r}]")
    data = replace(
        call.data,
        documents={**stored.documents, **call.data.documents},
        manifests={**stored.manifests, **call.data.manifests},
        columns={**stored.columns, **call.data.columns},
    )
    definition = call.definition.with_plan(data=dict(data.documents) or msgspec.UNSET)
    return replace(call, data=data, definition=definition)


def _check_given(plan: Plan, options: RunOptions) -> None:
    """Raises for what the trials of the sweep had, and the stored function needs as well."""
    documents = {} if plan.data is msgspec.UNSET else plan.data
    streams = [name for name, document in documents.items() if document["kind"] == STREAM]
    if missing := sorted(set(streams) - set(options.keywords.data)):
        raise SpecError(
            f"the trials of the sweep read the streams {missing}, which are stored nowhere: pass data= again"
        )
    variables = options.environment()
    if lacking := [name for name in plan.env if name not in variables]:
        raise ResumeError(
            "the sweep was started with variables for its trials, and their values are not stored: pass "
            f"{', '.join(lacking)} by env= (--env {lacking[0]}, to take it from here)"
        )


def compose_refit(
    directory: str, params: Mapping[str, Any], options: Mapping[str, Any], train: Callable[..., Any] | None = None
) -> CheckedCall:
    """The run that a call asks for. Blocks on the store. Raises UserError, NoBestTrialError."""
    keywords = settled(RefitKeywords, options, "refit")
    refit = Refit(directory, keywords.trial, keywords.from_checkpoint)
    winner = refit.winner()
    keywords = replace(keywords, **winner.defaults(options))
    return refit.checked(winner, params, RunOptions(keywords), train)
