"""The callback of XGBoost that reports, stops, checkpoints and resumes. Imports XGBoost."""

from collections.abc import Mapping, Sequence
from typing import Any

import xgboost
from xgboost.callback import (
    CallbackContainer,
    EarlyStopping,
    LearningRateScheduler,
    TrainingCallback,
    TrainingCheckPoint,
)

from sparktrain.errors import SpecError
from sparktrain.training.boosting import BoostingCallback, BoostingLibrary, BoostingMember, Evaluation

_LIBRARY = BoostingLibrary(
    name="XGBoost",
    callback="ctx.xgboost_callback()",
    evaluations="evals=[(data, 'valid')] to xgboost.train, or eval_set=[(x, y)] to fit",
    init_model="xgb_model",
)


class XGBoostCallback(BoostingCallback, TrainingCallback):
    """A callback for one training of XGBoost, in the process of a trial: what `ctx.xgboost_callback()` returns."""

    def __init__(self, member: BoostingMember, **options: Any) -> None:
        super().__init__(member, _LIBRARY, **options)

    def _loaded(self, booster: bytes) -> xgboost.Booster:
        return xgboost.Booster(model_file=bytearray(booster))

    def before_training(self, model: Any) -> Any:
        """See base class. Raises SpecError for `xgboost.cv`, a second training, and one that does not resume."""
        if not isinstance(model, xgboost.Booster):
            raise SpecError(
                "ctx.xgboost_callback() is for xgboost.train and fit, and xgboost.cv has it: call xgboost.train with "
                "the rows of ctx.fold, and pass folds= to sparktrain.sweep"
            )
        self._rounds.start(continues=model.num_boosted_rounds() >= 0)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """See base class. Raises SpecError where no evaluation is the run's metric."""
        evaluations = [
            Evaluation(data, metric, float(values[-1]))
            for data, log in evals_log.items()
            for metric, values in log.items()
        ]
        return self._rounds.finish(epoch, evaluations, lambda: bytes(model.save_raw("ubj")))


class _Callbacks(CallbackContainer):
    """The callbacks of one training. XGBoost counts its rounds from 0, and those of the checkpoint come before them."""

    def __init__(self, callbacks: Sequence[TrainingCallback], *args: Any, **options: Any) -> None:
        super().__init__(callbacks, *args, **options)
        resumed = (
            [] if self.is_cv else [entry._rounds for entry in self.callbacks if isinstance(entry, XGBoostCallback)]
        )
        self._first = resumed[0].first if resumed else 0
        self._past = resumed[0].history if resumed else []
        self._ended = False

    def before_training(self, model: Any) -> Any:
        """See base class."""
        if not self._first:
            return super().before_training(model)
        # Callbacks add the rounds of the first booster to those that they get.
        rounds = model.num_boosted_rounds() - self._first
        model.num_boosted_rounds = lambda: rounds
        try:
            started = super().before_training(model)
        finally:
            del model.num_boosted_rounds
        for epoch in range(self._first):
            self._repeat(started, epoch)
        return started

    def _repeat(self, model: Any, epoch: int) -> None:
        """Bring XGBoost's own callbacks to their state after a round that is in the checkpoint."""
        for data, metric, value, _ in self._past[epoch] if self._past else ():
            scores: Any = self.history.setdefault(data, {}).setdefault(metric, [])
            scores.append(value)
        for callback in self.callbacks:
            if isinstance(callback, LearningRateScheduler):
                LearningRateScheduler.after_iteration(callback, model, epoch, self.history)
            elif isinstance(callback, EarlyStopping) and self.history:
                self._ended |= EarlyStopping.after_iteration(callback, model, epoch, self.history)
            elif isinstance(callback, TrainingCheckPoint):
                callback._epoch = 1 if callback._epoch == callback._iterations else callback._epoch + 1

    def before_iteration(self, model: Any, epoch: int, *data: Any) -> bool:
        """See base class."""
        ended = self._ended or super().before_iteration(model, epoch + self._first, *data)
        if self._first and not ended:
            # With `seed_per_iteration` what a round draws follows from its number.
            update = model.update
            model.update = lambda rows, iteration, fobj: update(rows, iteration + self._first, fobj)
        return ended

    def after_iteration(self, model: Any, epoch: int, *data: Any) -> bool:
        """See base class."""
        vars(model).pop("update", None)
        return super().after_iteration(model, epoch + self._first, *data)


setattr(xgboost.training, CallbackContainer.__name__, _Callbacks)
