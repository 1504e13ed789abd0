"""Trainings of boosters with the callbacks of `ctx`, as the docs have them: with a stop, and with a kill."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparktrain.base.clock import pause

ROUNDS = 16
METRIC = "valid_loss"
"""What the functions for sweeps report and return."""

SLOW = 0.1
"""Below this learning rate a training of `boost` loses against the others."""
DEATH = 10
"""The round before which a training of `boost_to_death` ends."""

Rows = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]


class Trained(NamedTuple):
    """What a training leaves."""

    model: str
    """The booster as text."""
    metrics: dict[str, float]
    history: dict[str, dict[str, list[float]]]
    """The evaluations of each round, by evaluation set and metric."""
    best: int
    """The best round of early stopping."""


def halves() -> tuple[Rows, Rows]:
    """Rows to train on and rows to evaluate on, always the same."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 8))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=600) * 0.3 > 0).astype(int)
    return (x[:400], y[:400]), (x[400:], y[400:])


RATES = [0.9, 0.6, 0.3, 0.1] * (ROUNDS // 4)


def xgboost_peers(kind: str, notes: list[Any]) -> list[Any]:
    """Callbacks beside that of `ctx`: a schedule of rates, or early stopping, and one that notes what it gets."""
    from xgboost.callback import EarlyStopping, LearningRateScheduler, TrainingCallback

    class Notes(TrainingCallback):
        def before_training(self, model: Any) -> Any:
            self.first = model.num_boosted_rounds()
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            lengths = {len(values) for log in evals_log.values() for values in log.values()}
            notes.append((epoch, self.first, lengths))
            return False

    if kind == "early":
        return [Notes(), LearningRateScheduler(RATES), EarlyStopping(rounds=3, save_best=True)]
    return [Notes(), LearningRateScheduler(RATES if kind == "list" else RATES.__getitem__)]


def lightgbm_peers(kind: str, notes: list[Any]) -> list[Any]:
    """See `xgboost_peers`."""
    import lightgbm

    class Notes:
        def __call__(self, env: Any) -> None:
            notes.append((env.iteration, env.begin_iteration, env.end_iteration))

    def rise(env: Any) -> None:
        env.params["learning_rate"] *= 1.4
        env.model.reset_parameter({"learning_rate": env.params["learning_rate"]})

    rise.before_iteration, rise.order = True, 0  # type: ignore[attr-defined]
    if kind == "early":
        return [Notes(), rise, lightgbm.early_stopping(3, verbose=False)]
    return [Notes(), lightgbm.reset_parameter(learning_rate=RATES if kind == "list" else RATES.__getitem__)]


class XGBoostTrain:
    """`xgboost.train`."""

    callback = "xgboost_callback"
    loss = "valid_logloss"
    names = frozenset({"valid_logloss", "valid_error_0_7"})
    peers = staticmethod(xgboost_peers)

    @staticmethod
    def train(
        ctx: Any, rounds: int = ROUNDS, *, hook: Any = None, eta: float = 0.3, peers: Sequence[Any] = (), **options: Any
    ) -> Trained:
        """`hook(round)` runs before each round, numbered over all processes. `peers` are more callbacks."""
        import xgboost

        params = {"eval_metric": ["logloss", "error@0.7"], "max_depth": 3, "nthread": 1, "eta": eta}
        train_rows, valid_rows = halves()
        boosting = ctx.xgboost_callback(**options)
        history: dict[str, Any] = {}
        booster = xgboost.train(
            {"objective": "binary:logistic", **params},
            xgboost.DMatrix(*train_rows),
            boosting.remaining(rounds),
            evals=[(xgboost.DMatrix(*valid_rows), "valid")],
            xgb_model=boosting.init_model,
            callbacks=[*peers[:2], boosting, _hooked(hook), *peers[2:]],
            verbose_eval=False,
            evals_result=history,
        )
        best = int(booster.attr("best_iteration") or 0)
        return Trained("".join(booster.get_dump()), boosting.metrics, history, best)


class XGBoostFit:
    """`XGBClassifier.fit`."""

    callback = "xgboost_callback"
    loss = "validation_0_logloss"
    names = frozenset({"validation_0_logloss"})
    peers = staticmethod(xgboost_peers)

    @staticmethod
    def train(
        ctx: Any, rounds: int = ROUNDS, *, hook: Any = None, peers: Sequence[Any] = (), **options: Any
    ) -> Trained:
        """See `XGBoostTrain.train`."""
        import xgboost

        train_rows, valid_rows = halves()
        boosting = ctx.xgboost_callback(**options)
        callbacks = [*peers[:1], boosting, _hooked(hook), *peers[1:]]
        model = xgboost.XGBClassifier(
            n_estimators=boosting.remaining(rounds), max_depth=3, n_jobs=1, callbacks=callbacks
        )
        model.fit(*train_rows, eval_set=[valid_rows], xgb_model=boosting.init_model, verbose=False)
        booster = model.get_booster()
        best = int(booster.attr("best_iteration") or 0)
        return Trained("".join(booster.get_dump()), boosting.metrics, model.evals_result(), best)


def _hooked(hook: Any) -> Any:
    from xgboost.callback import TrainingCallback

    class Hooked(TrainingCallback):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if hook is not None:
                hook(epoch)
            return False

    return Hooked()


class LightGBMTrain:
    """`lightgbm.train`."""

    callback = "lightgbm_callback"
    loss = "valid_binary_logloss"
    names = frozenset({"valid_binary_logloss", "valid_binary_error"})
    peers = staticmethod(lightgbm_peers)

    @staticmethod
    def train(
        ctx: Any, rounds: int = ROUNDS, *, hook: Any = None, eta: float = 0.3, peers: Sequence[Any] = (), **options: Any
    ) -> Trained:
        """See `XGBoostTrain.train`."""
        import lightgbm

        params = {"metric": ["binary_logloss", "binary_error"], "learning_rate": eta, "num_threads": 1, "verbose": -1}
        train_rows, valid_rows = halves()
        boosting = ctx.lightgbm_callback(**options)
        data = lightgbm.Dataset(*train_rows)
        history: dict[str, Any] = {}
        recorder = lightgbm.record_evaluation(history)
        booster = lightgbm.train(
            {"objective": "binary", "deterministic": True, **params},
            data,
            boosting.remaining(rounds),
            valid_sets=[lightgbm.Dataset(*valid_rows, reference=data)],
            valid_names=["valid"],
            init_model=boosting.init_model,
            callbacks=[*peers[1:], boosting, _Before(hook), recorder, *peers[:1]],
        )
        return Trained(_trees(booster), boosting.metrics, history, booster.best_iteration)


class LightGBMFit:
    """`LGBMClassifier.fit`."""

    callback = "lightgbm_callback"
    loss = "valid_0_binary_logloss"
    names = frozenset({"valid_0_binary_logloss"})
    peers = staticmethod(lightgbm_peers)

    @staticmethod
    def train(
        ctx: Any, rounds: int = ROUNDS, *, hook: Any = None, peers: Sequence[Any] = (), **options: Any
    ) -> Trained:
        """See `LightGBMTrain.train`."""
        import lightgbm

        train_rows, valid_rows = halves()
        boosting = ctx.lightgbm_callback(**options)
        model = lightgbm.LGBMClassifier(n_estimators=boosting.remaining(rounds), n_jobs=1, verbose=-1)
        callbacks = [*peers[:1], _Before(hook), boosting, *peers[1:]]
        x, y = valid_rows
        model.fit(*train_rows, eval_X=x, eval_y=y, init_model=boosting.init_model, callbacks=callbacks)
        return Trained(_trees(model.booster_), boosting.metrics, model.evals_result_, model.best_iteration_)


class _Before:
    """A callback of LightGBM before a round."""

    def __init__(self, hook: Any) -> None:
        self.before_iteration = True
        self._hook = hook

    def __call__(self, env: Any) -> None:
        if self._hook is not None:
            self._hook(env.iteration)


def _trees(booster: Any) -> str:
    """The trees as text: what follows them are the parameters, such as the number of rounds."""
    return str(booster.model_to_string().partition("end of trees")[0])


USES: dict[str, Any] = {
    "xgboost": XGBoostTrain,
    "xgboost-fit": XGBoostFit,
    "lightgbm": LightGBMTrain,
    "lightgbm-fit": LightGBMFit,
}


def boost(use: str, eta: float, ctx: Any) -> dict[str, float]:
    """A trial of a sweep. A slow learner gives the rules of the run time to judge each of its reports."""
    boosting = USES[use]

    def wait(index: int) -> None:
        print(f"round {index}")
        for _ in range(100 if eta < SLOW else 0):
            if ctx.should_stop():
                return
            pause(0.005)

    trained = boosting.train(ctx, eta=eta, hook=wait, metric=boosting.loss)
    return {METRIC: trained.metrics[METRIC]}


def boost_to_death(use: str, folder: str, ctx: Any) -> dict[str, float]:
    """A training that kills its zygote in its first generation, right before a round; leaves the model as text."""

    def kill(index: int) -> None:
        print(f"round {index}")
        if ctx.generation == 1 and index == DEATH:
            ctx.checkpoint.wait()
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()

    trained = USES[use].train(ctx, hook=kill, metric=None, checkpoint_every=4)
    Path(folder, f"model-{ctx.generation}").write_text(trained.model)
    return {METRIC: 0.0}
