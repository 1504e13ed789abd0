"""The callback of XGBoost that reports, stops, checkpoints and resumes. Imports XGBoost."""

from collections.abc import Mapping
from typing import Any

import xgboost
from xgboost.callback import TrainingCallback

from sparktrain.errors import SpecError
from sparktrain.training.boosting import BoostingCallback, BoostingLibrary, BoostingMember

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
        self._rounds.start(continues=model.num_boosted_rounds() > 0)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """See base class. Raises SpecError where no evaluation is the run's metric."""
        scores = {
            f"{data}-{metric}": float(values[-1])
            for data, evaluations in evals_log.items()
            for metric, values in evaluations.items()
        }
        # XGBoost counts from 0 in each training, of the rounds of a resumed one too.
        return self._rounds.finish(self._rounds.first + epoch, scores, lambda: bytes(model.save_raw("ubj")))
