"""Callbacks of boosting libraries in this process: names, the end of a training, checkpoints, and what they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.errors import SpecError, UserError
from tests.support.boosted import ROUNDS, USES, halves

ALL = pytest.mark.parametrize("use", USES.values(), ids=USES)


@ALL
def test_each_round_is_reported_and_checkpoints_stay(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path, metric=use.loss) as ctx:
        use.train(ctx, checkpoint_every=4)
    assert [report.step for report in ctx.reports] == list(range(ROUNDS))
    assert {frozenset(report.metrics) for report in ctx.reports} == {use.names}
    assert ctx.reports[-1].metrics[use.loss] < ctx.reports[0].metrics[use.loss]
    assert [step % 4 for step in ctx.saved_steps] == [0, 0]


@ALL
def test_a_stopped_training_resumes_and_ends_with_the_same_model(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path / "unbroken") as ctx:
        unbroken_model = use.train(ctx).model
        unbroken = ctx.reports
    with st.testing.local_context(directory=tmp_path / "broken") as ctx:
        stopped_model = use.train(ctx, hook=lambda index: ctx.advise_stop() if index == 6 else None).model
        before = ctx.reports
    assert stopped_model != unbroken_model
    assert ctx.saved_steps[-1] == 7, "a training that stops between two checkpoints saves one"
    with st.testing.local_context(directory=tmp_path / "broken") as ctx:
        assert use.train(ctx).model == unbroken_model
        after = ctx.reports
    assert [report.step for report in [*before, *after]] == list(range(ROUNDS))
    assert [report.metrics for report in [*before, *after]] == [report.metrics for report in unbroken]


class LostError(Exception):
    """Ends a training between two checkpoints."""


def lose(index: int) -> None:
    if index == 3:
        raise LostError


@ALL
@pytest.mark.parametrize("kind", ["list", "function", "early"])
def test_peers_of_a_resumed_training_get_what_those_of_an_unbroken_one_get(use: Any, kind: str, tmp_path: Path) -> None:
    notes: list[Any] = []
    later: list[Any] = []
    with st.testing.local_context(directory=tmp_path / "unbroken") as ctx:
        unbroken = use.train(ctx, peers=use.peers(kind, notes))
    assert (len(notes) < ROUNDS) == (kind == "early")
    with st.testing.local_context(directory=tmp_path / "broken") as ctx, pytest.raises(LostError):
        use.train(ctx, peers=use.peers(kind, []), hook=lose, checkpoint_every=2)
    with st.testing.local_context(directory=tmp_path / "broken") as ctx:
        assert use.train(ctx, peers=use.peers(kind, later), checkpoint_every=1) == unbroken
    assert later == notes[2:]
    with st.testing.local_context(directory=tmp_path / "broken") as ctx:
        again = use.train(ctx, peers=use.peers(kind, later))
    if kind == "early":  # the checkpoint has the round that early stopping ended the training with
        assert (again, later) == (unbroken, notes[2:])


@ALL
def test_a_checkpoint_without_evaluations_resumes(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path) as ctx, pytest.raises(LostError):
        use.train(ctx, hook=lose, checkpoint_every=2)
    with st.testing.local_context(directory=tmp_path) as ctx:
        restored: Any = ctx.checkpoint.restore()
        entry = restored.extra["boosting"]
        del entry["history"]
        ctx.checkpoint.save(5, boosting=entry)
    with st.testing.local_context(directory=tmp_path) as ctx:
        notes: list[Any] = []
        trained = use.train(ctx, peers=use.peers("early", notes))
    assert [note[0] for note in notes] == list(range(2, 2 + len(notes)))
    assert {len(values) for log in trained.history.values() for values in log.values()} == {len(notes)}


@ALL
def test_metrics_of_a_checkpoint_are_those_of_its_round(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path) as ctx:
        use.train(ctx, checkpoint_every=5)
        reported = ctx.reports[14].metrics
    with st.testing.local_context(directory=tmp_path) as ctx:
        boosting = getattr(ctx, use.callback)()
        assert boosting.metrics == reported
        assert boosting.remaining(ROUNDS) == 1
        assert boosting.init_model is not boosting.init_model


@ALL
def test_an_evaluation_is_the_metric_of_the_run(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path, metric="loss") as ctx:
        use.train(ctx, metric=use.loss, checkpoint_every=None)
    assert {report.metrics["loss"] - report.metrics[use.loss] for report in ctx.reports} == {0.0}
    assert ctx.saved_steps == ()


def test_the_names_of_a_library_name_the_metric_of_the_run_too() -> None:
    use = USES["xgboost"]
    with st.testing.local_context(metric="valid-error@0.7") as ctx:
        use.train(ctx)
    assert set(ctx.reports[0].metrics) == {"valid_logloss", "valid-error@0.7"}


@ALL
def test_a_metric_that_no_evaluation_has_ends_the_first_round(use: Any) -> None:
    near = f"{use.loss}s"
    with st.testing.local_context(metric=near) as ctx:
        with pytest.raises(SpecError, match=f"{near}' is none of the evaluations '.*; did you mean '{use.loss}'"):
            use.train(ctx)
        assert ctx.reports == ()
    with st.testing.local_context(metric="accuracy") as ctx:
        use.train(ctx, metric=None)
    assert len(ctx.reports) == ROUNDS


@ALL
def test_a_training_that_ignores_the_checkpoint_is_refused(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path) as ctx:
        use.train(ctx)
    with st.testing.local_context(directory=tmp_path) as ctx:
        forgetful = Forgetful(ctx, use.callback)
        with pytest.raises(SpecError, match=r"resumes after 10 rounds.*init_model, and callback.remaining"):
            use.train(forgetful)


class Forgetful:
    """A context with a callback without the booster that a training resumes from."""

    def __init__(self, ctx: Any, name: str) -> None:
        callback = getattr(ctx, name)()
        kind = type(callback)
        without = type(kind.__name__, (kind,), {"init_model": None})
        callback.__class__ = without
        setattr(self, name, lambda: callback)


@ALL
def test_a_checkpoint_of_something_else_is_refused(use: Any, tmp_path: Path) -> None:
    with st.testing.local_context(directory=tmp_path) as ctx:
        ctx.checkpoint.save(3, weights=np.zeros(2))
    with st.testing.local_context(directory=tmp_path) as ctx:
        with pytest.raises(UserError, match=r"the checkpoint of step 3 has no booster.*checkpoint_every=None"):
            getattr(ctx, use.callback)()
        getattr(ctx, use.callback)(checkpoint_every=None)


@pytest.mark.parametrize("every", [0, True, "10s", 1.5], ids=str)
def test_an_interval_is_a_number_of_rounds(every: Any) -> None:
    with st.testing.local_context() as ctx:
        for name in sorted({use.callback for use in USES.values()}):
            with pytest.raises(SpecError, match=r"checkpoint_every is .* pass a number of rounds from 1, or None"):
                getattr(ctx, name)(checkpoint_every=every)


@ALL
def test_one_callback_is_for_one_training(use: Any) -> None:
    with st.testing.local_context() as ctx:
        callback = getattr(ctx, use.callback)()
        setattr(again := type("Again", (), {})(), use.callback, lambda: callback)
        use.train(again)
        with pytest.raises(SpecError, match=r"for one training.*pass folds="):
            use.train(again)


def test_rounds_that_a_checkpoint_has_already(tmp_path: Path) -> None:
    for name in ("xgboost", "lightgbm"):
        with st.testing.local_context(directory=tmp_path / name) as ctx:
            USES[name].train(ctx)
    with st.testing.local_context(directory=tmp_path / "xgboost") as ctx:
        assert ctx.xgboost_callback().remaining(3) == 0
    refused = pytest.raises(SpecError, match=r"remaining\(3\) is 0, because the checkpoint has 10 rounds")
    with st.testing.local_context(directory=tmp_path / "lightgbm") as ctx, refused:
        ctx.lightgbm_callback().remaining(3)


def test_early_stopping_of_lightgbm_keeps_the_last_report() -> None:
    import lightgbm

    train_rows, valid_rows = halves()
    with st.testing.local_context() as ctx:
        boosting = ctx.lightgbm_callback()
        data = lightgbm.Dataset(*train_rows)
        booster = lightgbm.train(
            {"objective": "binary", "learning_rate": 0.9, "verbose": -1, "num_threads": 1},
            data,
            200,
            valid_sets=[lightgbm.Dataset(*valid_rows, reference=data)],
            callbacks=[lightgbm.early_stopping(3, verbose=False), boosting],
        )
    assert len(ctx.reports) == booster.best_iteration + 3 < 200


def test_a_cross_validation_of_lightgbm_is_refused() -> None:
    import lightgbm

    data = lightgbm.Dataset(*halves()[0])
    with st.testing.local_context() as ctx, pytest.raises(SpecError, match=r"lightgbm.cv.*ctx.fold"):
        lightgbm.cv({"objective": "binary", "verbose": -1}, data, 2, callbacks=[ctx.lightgbm_callback()])


def test_a_cross_validation_of_xgboost_is_refused() -> None:
    import xgboost

    with st.testing.local_context() as ctx, pytest.raises(SpecError, match=r"xgboost.cv.*ctx.fold"):
        xgboost.cv({}, xgboost.DMatrix(*halves()[0]), 2, callbacks=[ctx.xgboost_callback()])


@ALL
def test_a_library_that_is_missing_is_named_with_its_extra(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use.callback.partition("_")[0]
    monkeypatch.setattr("sparktrain.base.optional_packages.find_spec", lambda name: None)
    with st.testing.local_context() as ctx, pytest.raises(SpecError, match=rf"pip install 'sparktrain\[{library}\]'"):
        getattr(ctx, use.callback)()
