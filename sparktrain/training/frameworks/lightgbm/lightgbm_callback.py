"""The callback of LightGBM that reports, stops, checkpoints and resumes. Imports LightGBM."""

from typing import Any

import lightgbm
from lightgbm.callback import CallbackEnv, EarlyStopException

from sparktrain.errors import SpecError
from sparktrain.training.boosting import BoostingCallback, BoostingLibrary, BoostingMember

_ORDER = 25
"""After the callback that records evaluations, and before that of early stopping, which ends the calls of a round."""
_LIBRARY = BoostingLibrary(
    name="LightGBM",
    callback="ctx.lightgbm_callback()",
    evaluations="valid_sets=[data], valid_names=['valid'] to lightgbm.train, or eval_X=x, eval_y=y to fit",
    init_model="init_model",
)


class LightGBMCallback(BoostingCallback):
    """A callback for one training of LightGBM, in the process of a trial: what `ctx.lightgbm_callback()` returns."""

    def __init__(self, member: BoostingMember, **options: Any) -> None:
        super().__init__(member, _LIBRARY, **options)
        # LightGBM reads these from the instance, and sets an order of its own where it has none.
        self.order = _ORDER
        self.before_iteration = False

    def _loaded(self, booster: bytes) -> lightgbm.Booster:
        return lightgbm.Booster(model_str=booster.decode())

    def _check_left(self, total: int, left: int) -> None:
        if not left:
            raise SpecError(
                f"ctx.lightgbm_callback(): remaining({total}) is 0, because the checkpoint has {self._rounds.first} "
                "rounds, and LightGBM trains at least one: pass a larger number, or train under another name"
            )

    def __call__(self, env: CallbackEnv) -> None:
        """Take part in a training after a round, as LightGBM's callbacks do.

        Raises EarlyStopException to end the training, and SpecError for `lightgbm.cv`, a second training, one that does
        not resume, and where no evaluation is the run's metric.
        """
        booster = env.model
        if not isinstance(booster, lightgbm.Booster):
            raise SpecError(
                "ctx.lightgbm_callback() is for lightgbm.train and fit, and lightgbm.cv has it: call lightgbm.train "
                "with the rows of ctx.fold, and pass folds= to sparktrain.sweep"
            )
        if env.iteration == env.begin_iteration:
            self._rounds.start(continues=env.begin_iteration > 0)
        evaluations = env.evaluation_result_list or []
        scores = {f"{data}-{metric}": float(value) for data, metric, value, *_ in evaluations}
        # A resumed training has at least one round, so that the last round is in no checkpoint.
        last = env.iteration + 1 == env.end_iteration
        text = None if last else lambda: booster.model_to_string(num_iteration=-1).encode()
        index = self._rounds.first + env.iteration - env.begin_iteration
        if self._rounds.finish(index, scores, text):
            raise EarlyStopException(env.iteration, evaluations)
