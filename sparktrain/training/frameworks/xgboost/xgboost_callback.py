"""The callback of XGBoost that reports, stops, checkpoints and resumes. Imports XGBoost."""

from collections.abc import Mapping
from typing import Any

import xgboost
from xgboost.callback import TrainingCallback

from sparktrain.errors import SpecError
from sparktrain.training.boosting import BoostingLibrary, BoostingMember, BoostingRounds

_LIBRARY = BoostingLibrary(
    name="XGBoost",
    callback="ctx.xgboost_callback()",
    evaluations="evals=[(data, 'valid')] to xgboost.train, or eval_set=[(x, y)] to fit",
    init_model="xgb_model",
)


class XGBoostCallback(TrainingCallback):
    """A callback for one training of XGBoost, in the process of a trial: what `ctx.xgboost_callback()` returns."""

    def __init__(self, member: BoostingMember, **options: Any) -> None:
        super().__init__()
        self._rounds = BoostingRounds(member, _LIBRARY, **options)

    @property
    def init_model(self) -> xgboost.Booster | None:
        """A copy of the booster of the newest checkpoint, for `xgb_model=`; None in the first generation."""
        booster = self._rounds.booster
        return None if booster is None else xgboost.Booster(model_file=bytearray(booster))

    def remaining(self, total: int) -> int:
        """How many of `total` rounds are not in `init_model`: for `num_boost_round=` or `n_estimators=`.

        Raises TypeError or ValueError for what is no integer from 0.
        """
        return self._rounds.remaining(total)

    @property
    def metrics(self) -> dict[str, float]:
        """What the newest round has reported, in this generation or before its checkpoint: a result for a trial."""
        return dict(self._rounds.metrics)

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
