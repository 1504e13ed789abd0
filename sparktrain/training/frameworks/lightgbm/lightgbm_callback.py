"""The callback of LightGBM that reports, stops, checkpoints and resumes. Imports LightGBM."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import lightgbm
from lightgbm.callback import (
    CallbackEnv,
    EarlyStopException,
    _EarlyStoppingCallback,
    _RecordEvaluationCallback,
)

from sparktrain.errors import SpecError
from sparktrain.training.boosting import BoostingCallback, BoostingLibrary, BoostingMember, Evaluation

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
        self.before_iteration = False
        self._params: dict[str, Any] = {}
        """Those with which the training was called."""

    @property
    def order(self) -> int:
        """LightGBM sorts the callbacks of a training by it, after those that it calls before a round."""
        self._params = dict(_local(sys._getframe(1), "params") or {})
        if self._rounds.first and (first := _local(sys._getframe(1), "callbacks_before_iter")) is not None:
            first.insert(0, self._resume)
        return _ORDER

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
        if env.iteration == env.begin_iteration and not self._rounds.first:
            self._rounds.start(continues=env.begin_iteration > 0)
        evaluations = env.evaluation_result_list or []
        scores = [Evaluation(data, metric, float(value), up) for data, metric, value, up, *_ in evaluations]
        scalars = {key: value for key, value in env.params.items() if isinstance(value, bool | int | float | str)}
        self._rounds.params = {key: value for key, value in scalars.items() if value != self._params.get(key)}
        # A resumed training has at least one round, so that the last round is in no checkpoint.
        last = env.iteration + 1 == env.end_iteration
        text = None if last else lambda: booster.model_to_string(num_iteration=-1).encode()
        index = self._rounds.first + env.iteration - env.begin_iteration
        if self._rounds.finish(index, scores, text):
            raise EarlyStopException(env.iteration, evaluations)

    def _resume(self, env: CallbackEnv) -> None:
        """Before the first round of a resumed training: have its other callbacks continue those of the checkpoint."""
        if env.iteration > env.begin_iteration:
            return
        self._rounds.start(continues=env.begin_iteration > 0)
        if changed := self._rounds.params:  # a callback may start from those of the round before
            booster: Any = env.model
            booster.reset_parameter(changed)
            env.params.update(changed)
        before = _local(sys._getframe(1), "callbacks_before_iter")
        after = _local(sys._getframe(1), "callbacks_after_iter")
        start = env.begin_iteration - self._rounds.first
        ended = self._repeat(replace(env, begin_iteration=start), after)
        keeps = (self, self._resume) if self._rounds.history else (self, self._resume, *filter(_has_history, after))
        for callbacks in (before, after):
            callbacks[:] = [entry if entry in keeps else _Continued(entry, start) for entry in callbacks]
        if ended is not None:
            before[1:] = []
            after[:] = [ended]

    def _repeat(self, env: CallbackEnv, callbacks: list[Any]) -> Any:
        """Bring those of LightGBM's callbacks that have evaluations to their state after the rounds in the checkpoint.

        Returns a callback that ends the training where they have ended it with these rounds, and else None.
        """
        try:
            for index, evaluations in enumerate(self._rounds.history):
                past = replace(
                    env, iteration=env.begin_iteration + index, evaluation_result_list=list(map(_result, evaluations))
                )
                for callback in filter(_has_history, callbacks):
                    callback(past)
        except EarlyStopException as error:
            return _End(error)
        return None


class _Continued:
    """A callback of a resumed training, which gets the first round of the unbroken one."""

    def __init__(self, callback: Any, start: int) -> None:
        self._callback = callback
        self._start = start

    def __call__(self, env: CallbackEnv) -> None:
        self._callback(replace(env, begin_iteration=self._start))


class _End:
    """Ends a training that early stopping had ended before the restart: LightGBM cannot train no round."""

    def __init__(self, error: EarlyStopException) -> None:
        self._error = error

    def __call__(self, env: CallbackEnv) -> None:
        booster: Any = env.model
        booster.rollback_one_iter()
        raise self._error


def _has_history(callback: Any) -> bool:
    return isinstance(callback, _RecordEvaluationCallback | _EarlyStoppingCallback)


def _result(evaluation: Evaluation) -> Any:
    kind: Any = getattr(lightgbm.callback, "EvalResult", None)
    return tuple(evaluation) if kind is None else kind(*evaluation)  # a tuple before LightGBM 4.7


def _local(frame: FrameType, name: str) -> Any:
    """A variable of the `lightgbm.train` in `frame`; None where something else is."""
    in_train = (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("lightgbm.engine", "train")
    return frame.f_locals[name] if in_train else None
