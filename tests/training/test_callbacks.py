"""What members do between the steps of fit, and that the user's own callbacks do the same on all of them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.errors import SpecError
from sparktrain.state.agent_messages import Seating
from sparktrain.state.topology import MemberAddress
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.data.fit_stages import StagePosition
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras.boundary_callback import MeetAtBoundary
from sparktrain.training.frameworks.keras.callbacks import (
    AverageMetrics,
    ProgressCallback,
    WarmUp,
    keras_callbacks,
)
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.keras.user_callbacks import CallbackStateKeeper, ResumedState
from tests.training.gluing import Memory, Outside, feed_of, ids, member
from tests.training.rings import ThreadRing, together


def built(seed: int = 0) -> Any:
    """A model with its variables, which differ between seeds."""
    model = member()
    model(ids[:2])
    model.dense.kernel.assign([[float(seed)]])
    return model


def callbacks_of(model: Any, ring: Ring, outside: Outside, *, steps: int | None = 4, **options: Any) -> Any:
    """The callbacks as fit would hold them."""
    found = keras_callbacks(outside.ties(ring, options.pop("snapshots", None)), **options)
    return keras.callbacks.CallbackList(found, model=model, epochs=9, steps=steps, verbose=0)


def test_each_fit_reports_epochs_and_steps_and_is_checked_at_its_start_and_end() -> None:
    outside = Outside()
    data = feed_of("known", outside.position)
    callbacks = keras_callbacks(outside.ties())
    model = member()
    history = model.fit(data, validation_data=(ids, ids), epochs=2, callbacks=callbacks, verbose=0, shuffle=False)
    model.fit(data, callbacks=callbacks, verbose=0, shuffle=False)

    assert [step for step, _ in outside.reports] == [0, 1, 2]
    assert outside.reports[1][1] == {name: pytest.approx(values[1]) for name, values in history.history.items()}
    assert {"loss", "mae", "val_loss", "val_mae"} == set(history.history)
    assert outside.checks == [1, 46, 47, 69]
    assert outside.steps == [(0, True), (1, True), (46, False), (46, True), (69, False)]
    assert outside.position.step == 3 * 23


def test_weights_are_checked_after_the_first_step_in_each_other_ring() -> None:
    outside = Outside()
    callbacks = callbacks_of(built(), LocalRing(), outside, steps=8)
    [survivor] = [entry._boundary for entry in callbacks.callbacks if isinstance(entry, MeetAtBoundary)]
    deps = outside.ties(LocalRing())
    boundary = deps.boundary
    newcomer = ProgressCallback(deps)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for batch in range(7):
        if batch in (2, 5):  # in the event of this step: the first one in the other ring is the next
            survivor.enter_ring(batch + 1)
        callbacks.on_train_batch_end(batch, {})
        if batch == 2:
            boundary.continue_with(batch + 1, survivor.agreed())
        assert len(outside.checks) == sum(step <= outside.position.step for step in (1, 4, 7))

    assert [boundary.has_stepped(step) for step in (1, 2)] == [False, True]
    newcomer.set_model(callbacks.callbacks[0].model)
    for step in (3, 4):
        outside.position.step = step
        newcomer.on_train_batch_end(step - 1, {})
        assert len(outside.checks) == step, "it has a part in what the others compare, and calls nothing else"


def test_progress_is_reported_every_half_second_and_while_validating() -> None:
    outside = Outside()
    callbacks = callbacks_of(built(), LocalRing(), outside)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for batch in range(4):
        callbacks.on_train_batch_end(batch, {})
        outside.clock.time += 0.3
    callbacks.on_test_begin()
    outside.clock.time += 1
    callbacks.on_test_batch_end(0, {})

    assert outside.steps == [(0, True), (1, True), (3, True), (4, True)]


def test_members_start_with_the_chiefs_state_and_keep_their_seeds() -> None:
    def start(ring: ThreadRing) -> Any:
        keras.utils.set_random_seed(ring.rank)
        inside = [
            keras.Input((1,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
        model = keras.Sequential(inside)
        optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(0.1 + ring.rank))
        distribute(optimizer, ring)
        model.compile(optimizer, "mse")
        model.layers[1].moving_mean.assign([float(ring.rank)] * 3)
        outside = Outside()
        callbacks_of(model, ring, outside).on_train_begin()
        assert outside.compared == [(model, 4)]
        rate = float(model.optimizer.inner_optimizer.learning_rate)
        return model.get_weights(), rate, model.layers[2].seed_generator.state.numpy()

    (first, rate, seed), (second, other_rate, other_seed) = together(2, start)

    assert rate == other_rate == pytest.approx(0.1)
    for one, another in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, another)
    assert seed.tolist() != other_seed.tolist()


@pytest.mark.parametrize(("differs", "sent"), [((), []), ((1,), [(2,)]), ((0, 1), [(3, 2), (2,)])])
def test_only_what_differs_between_members_is_sent(differs: tuple[int, ...], sent: list[tuple[int, ...]]) -> None:
    def start(ring: ThreadRing) -> Any:
        model: Any = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        distribute(model.optimizer, ring)
        for number, weight in enumerate(model.weights):
            weight.assign(np.full(weight.shape, np.nan if number not in differs else ring.rank, "float32"))
        callbacks = callbacks_of(model, ring, Outside())
        callbacks.on_train_begin()
        shapes = [tuple(each.shape) for each in ring.sent.get("start", [])]
        return shapes, [each.numpy().tolist() for each in model.weights]

    (shapes, weights), (others, other_weights) = together(2, start)
    assert shapes == others == sent
    assert repr(weights) == repr(other_weights), "NaN equals NaN"


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ("ring", "optimizer=ctx.distribute(...)"),
        ("steps", "have different steps in an epoch: give each member the same data, by ctx.shard() (4, 5, by rank)"),
        ("order", "have different data, or would shuffle it in other orders: give each dataset.shuffle() a seed"),
    ],
)
def test_members_that_would_not_train_together_all_raise(differs: str, words: str) -> None:
    def start(ring: ThreadRing) -> None:
        odd = ring.rank == 1
        model: Any = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        if differs != "ring":
            distribute(model.optimizer, ring)
        outside = Outside()
        outside.position.order = int(differs == "order" and odd)
        callbacks_of(model, ring, outside, steps=5 if differs == "steps" and odd else 4).on_train_begin()

    for error in together(2, start):
        assert isinstance(error, SpecError)
        assert words in str(error)


def test_a_model_without_variables_is_built_from_the_data_or_is_an_error() -> None:
    outside, memory, saved = Outside(), Memory(), built()
    saved.optimizer.build(saved.trainable_variables)
    memory.save(saved, StagePosition(30, 2, 8), [], score=None)
    with pytest.raises(SpecError, match="the model has no variables yet"):
        callbacks_of(member(), LocalRing(), outside, snapshots=memory).on_train_begin()
    outside = Outside()
    feed_of("known", outside.position)
    model = member()
    callbacks_of(model, LocalRing(), outside, snapshots=Memory()).on_train_begin()

    assert model.built
    assert [metric.name for metric in model.metrics for _ in metric.variables] == [
        "loss",
        "loss",
        *["compile_metrics"] * 2,
    ]


def test_a_model_without_an_optimizer_is_an_error() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(SpecError, match="the model has no optimizer"):
        callbacks_of(model, LocalRing(), Outside(), snapshots=Memory()).on_train_begin()


def test_metrics_are_averaged_in_one_operation_and_the_others_are_left() -> None:
    def epoch(ring: ThreadRing) -> Any:
        logs = {"loss": 1.0 + ring.rank, "b": np.float32(ring.rank), "shape": [1, 2]}
        average = AverageMetrics(ring)
        average.on_train_begin()
        average.on_test_end({"loss": 5.0})
        average.on_epoch_end(0, logs)
        average.on_train_end()
        tested = {"loss": float(ring.rank)}
        average.on_test_end(tested)
        return logs, tested, ring.operations

    wanted = {"loss": 2.0, "b": 1.0, "shape": [1, 2]}, {"loss": 1.0}, ["epoch_metrics", "test_metrics"]
    assert together(3, epoch) == [wanted] * 3


def test_members_with_different_metrics_all_raise() -> None:
    def epoch(ring: ThreadRing) -> None:
        logs = {"loss": 1.0} | ({"val_loss": 2.0} if ring.rank == 0 else {})
        AverageMetrics(ring).on_epoch_end(0, logs)

    first, second = together(2, epoch)
    assert "member 0 has the metrics loss, val_loss, and another member others" in str(first)
    assert isinstance(second, SpecError)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras with NumPy 2.4
def test_early_stopping_and_plateaus_come_at_the_same_epoch_on_all_members() -> None:
    losses = [[5.0, 4.0, 3.0, 2.0, 1.0, 0.5], [5.0, 6.0, 6.0, 7.0, 9.0, 9.0]]  # the mean rises from the fourth epoch on

    def fit(ring: ThreadRing, averaged: bool) -> Any:
        model = built()
        own = [keras.callbacks.EarlyStopping("loss", patience=2), keras.callbacks.ReduceLROnPlateau("loss", patience=1)]
        glue = [AverageMetrics(ring)] if averaged else []
        callbacks = keras.callbacks.CallbackList([*glue, *own], model=model, epochs=6, steps=1, verbose=0)
        model.stop_training = False
        callbacks.on_train_begin()
        for epoch, loss in enumerate(losses[ring.rank]):
            callbacks.on_epoch_begin(epoch)
            callbacks.on_epoch_end(epoch, {"loss": loss})
            if model.stop_training:
                break
        return epoch, float(model.optimizer.learning_rate)

    together_ = together(2, lambda ring: fit(ring, True))
    apart = together(2, lambda ring: fit(ring, False))

    assert together_[0] == together_[1]
    assert together_[0][0] < 5
    assert apart[0] != apart[1]


def test_all_members_stop_after_the_same_step() -> None:
    def steps(ring: ThreadRing) -> Any:
        outside, position = Outside(), Position()
        model = built()
        model.stop_training = False
        boundary = StepBoundary(ring, outside.clock, lambda: ring.rank == 1 and position.step >= 20)
        callback = MeetAtBoundary(boundary, CallbackStateKeeper(position, ResumedState()))
        callback.set_model(model)
        position.start_fit(1000)
        callback.on_train_begin()
        position.start_epoch(0)
        for step in range(200):
            outside.clock.time += 0.125 * (1 + ring.rank)
            position.finish_step(step)
            callback.on_train_batch_end(step)
            if model.stop_training:
                break
        model.stop_training = False
        callback.on_epoch_end(0)
        return position.step, len(ring.operations), model.stop_training, position.stopped

    # Steps of 0.25 s: they agree after 1, 3, 7 and then every 4 steps, a second, and at the end of the epoch.
    assert together(2, steps) == [(23, 8, True, True)] * 2


@pytest.mark.parametrize("lacking", [None, 1])
def test_members_change_their_ring_after_the_same_step_once_all_know_of_the_process(lacking: int | None) -> None:
    places = (MemberAddress("b", "127.0.0.1", 1, Role.WORKER),)
    process = Seating(member=Member(RunId("r"), TrialId(0), Generation(1)), ring=4, places=places, moving=Rank(1))

    class Healing:
        """Knows of a process that waits, from step 5 on."""

        def __init__(self, rank: int, position: Position) -> None:
            self.rank = rank
            self.position = position

        def offer(self) -> Seating | None:
            came = self.position.step >= 5 and self.rank != lacking
            return process if came else None

    def changes(ring: ThreadRing) -> Any:
        outside, position = Outside(), Position()
        model = built()
        model.stop_training = False
        noted: list[tuple[int, int]] = []
        healing = cast(Any, Healing(ring.rank, position))
        boundary = StepBoundary(ring, outside.clock, lambda: False, healing=healing)
        callback = MeetAtBoundary(boundary, CallbackStateKeeper(position, ResumedState()))
        callback.set_model(model)
        position.start_fit(1000)
        callback.on_train_begin()
        position.start_epoch(0)
        for step in range(8):
            outside.clock.time += 0.125 * (1 + ring.rank)
            position.finish_step(step)
            callback.on_train_batch_end(step)
            if boundary.offer is not None:
                noted.append((position.step, boundary.offer.ring))
                boundary.offer = None
        return noted, model.stop_training

    # They agree after 1, 3 and 7 steps.
    assert together(2, changes) == [([] if lacking is not None else [(7, 4)], False)] * 2


class Watch(keras.callbacks.Callback):
    """Watches each step, and can stop none."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


class StopBySelf(keras.callbacks.Callback):
    """Stops after a step, by the name of the attribute that `stop` reads."""

    def __init__(self, at: int, stop: Any) -> None:
        super().__init__()
        self._at = at
        self._stop = stop

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self._at:
            self._stop(self.model)


def stop_openly(model: Any) -> None:
    model.stop_training = True


def stop_by_text(model: Any) -> None:
    setattr(model, "_".join(["stop", "training"]), True)


@pytest.mark.parametrize(
    ("kind", "each_step", "steps"),
    [(None, False, 40), (stop_openly, True, 14), (stop_by_text, False, 15)],
    ids=["watches", "stops openly", "stops in a way that its code does not show"],
)
def test_members_meet_at_each_step_only_where_a_callback_may_stop_them(kind: Any, each_step: bool, steps: int) -> None:
    def fit(ring: ThreadRing) -> Any:
        outside, model = Outside(), built()
        distribute(model.optimizer, ring)
        stop = Watch() if kind is None else StopBySelf(13 if ring.rank else 99, kind)
        callbacks = keras.callbacks.CallbackList(
            [*keras_callbacks(outside.ties(ring)), stop], model=model, epochs=1, steps=40, verbose=0
        )
        model.stop_training = False
        callbacks.on_train_begin()
        callbacks.on_epoch_begin(0)
        for batch in range(40):
            outside.clock.time += 0.25
            callbacks.on_train_batch_begin(batch)
            callbacks.on_train_batch_end(batch, {})
            if model.stop_training:
                break
        callbacks.on_epoch_end(0, {"loss": 1.0})
        return outside.position.step, ring.operations.count("boundary") > 12, model.stop_training

    assert together(2, fit) == [(steps, each_step, kind is not None)] * 2


def test_a_trial_of_one_member_stops_after_the_step() -> None:
    outside = Outside(stop=True)
    model = member()
    model.fit(
        feed_of("known", outside.position),
        epochs=3,
        callbacks=keras_callbacks(outside.ties()),
        verbose=0,
        shuffle=False,
    )

    assert (len(model.seen), outside.position.step) == (1, 1)


def test_checkpoints_by_time_and_of_the_best_epoch() -> None:
    outside, memory = Outside(), Memory()
    callbacks = callbacks_of(built(), LocalRing(), outside, snapshots=memory, checkpoint_every="30s", monitor="loss")
    callbacks.model.stop_training = False
    callbacks.on_train_begin()
    for epoch, loss in enumerate([3.0, 2.0]):
        callbacks.on_epoch_begin(epoch)
        for batch in range(4):
            outside.clock.time += 11
            callbacks.on_train_batch_end(batch, {})
        callbacks.on_epoch_end(epoch, {"loss": loss})
    saved = [(at.step, at.epoch, at.batch, score) for at, score, _ in memory.saved]

    assert saved == [(3, 0, 3, None), (4, 1, 0, -3.0), (7, 1, 3, None), (8, 2, 0, -2.0)]


@pytest.mark.parametrize(("every", "steps"), [("epoch", [2, 4]), ("30s", [2]), (None, [])])
def test_a_member_alone_that_is_asked_to_move_saves_after_the_step_and_waits(
    every: str | None, steps: list[int]
) -> None:
    outside, memory = Outside(), Memory()
    callbacks = callbacks_of(built(), LocalRing(), outside, snapshots=memory, checkpoint_every=every)
    callbacks.model.stop_training = False
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for batch in range(4):
        memory.moves = batch == 1
        callbacks.on_train_batch_end(batch, {})
    callbacks.on_epoch_end(0, {})

    assert [at.step for at, _, _ in memory.saved] == steps
    assert memory.waits == steps[:1]


def test_an_epoch_that_is_stopped_in_its_middle_is_not_saved() -> None:
    memory = Memory()
    callbacks = callbacks_of(built(), LocalRing(), Outside(stop=True), snapshots=memory, checkpoint_every="epoch")
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_train_batch_end(0, {})
    callbacks.on_epoch_end(0, {})

    assert memory.saved == []


@pytest.mark.parametrize("gang", [1, 2])
def test_logs_of_any_name_are_reported(gang: int) -> None:
    logs = {"step": 0.5, "self": 1.5, "epoch": 2.5, "loss": 3.5, "text": "x"}

    def reports(ring: Any) -> Any:
        outside = Outside()
        callbacks = callbacks_of(built(), ring, outside)
        callbacks.on_epoch_begin(0)
        callbacks.on_epoch_end(0, dict(logs))
        return outside.reports

    found = reports(LocalRing()) if gang == 1 else together(2, reports)[0]
    assert found == [(0, {"step": 0.5, "self": 1.5, "epoch": 2.5, "loss": 3.5})]


def test_only_the_chief_reports() -> None:
    def names(ring: ThreadRing) -> list[str]:
        return [type(each).__name__ for each in keras_callbacks(Outside().ties(ring, Memory()), warmup=1)]

    chief, other = together(2, names)
    assert [name for name in chief if name not in other] == ["ReportMetrics"]
    assert chief[:6] == ["Arrange", "TrackPosition", "WarmUp", "Resume", "StartTogether", "AverageWeights"]
    assert chief[-4:] == ["CallbackStateKeeper", "MeetAtBoundary", "SaveCheckpoints", "EndStage"]


def test_all_members_resume_where_the_chief_does() -> None:
    def start(ring: ThreadRing) -> Any:
        outside, memory, model = Outside(), Memory(), built(ring.rank)
        distribute(model.optimizer, ring)
        feed_of("known", outside.position, rank=ring.rank, size=2)
        if ring.rank == 0:
            model.optimizer.build(model.trainable_variables)
            memory.save(model, StagePosition(30, 2, 8), [], score=None)
        callbacks = callbacks_of(model, ring, outside, snapshots=memory)
        callbacks.on_train_begin()
        place = model._initial_epoch, outside.position.step, outside.position.batch
        callbacks.on_epoch_begin(2)
        return place, [each.numpy().tolist() for each in (*model.weights, *model.optimizer.variables)]

    (chief, weights), (other, others) = together(2, start)
    assert chief == other == (2, 30, 8)
    assert weights == others


def test_an_epoch_of_the_users_own_data_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    outside, memory, model = Outside(), Memory(), built()
    model.optimizer.build(model.trainable_variables)
    memory.save(model, StagePosition(30, 2, 8), [], score=None)
    callbacks_of(model, LocalRing(), outside, snapshots=memory).on_train_begin()

    assert (outside.position.epoch, outside.position.batch) == (2, 0)
    assert (
        "[sparktrain] epoch 2 restarts from its first step, and fit() may read its data in another order"
        in capsys.readouterr().err
    )


def test_the_learning_rate_rises_to_that_of_the_gang() -> None:
    def rates(ring: ThreadRing) -> list[float]:
        model, position = built(), Position()
        model.optimizer.learning_rate.assign(0.4)
        callback = WarmUp(ring, position, 2)
        callback.set_model(model)
        callback.set_params({"steps": 2})
        position.start_fit(2)
        callback.on_train_begin()
        found = []
        for epoch in range(3):
            position.start_epoch(epoch)
            for step in range(2):
                callback.on_train_batch_begin(step)
                found.append(float(model.optimizer.learning_rate))
                position.finish_step(step)
        model.optimizer.learning_rate.assign(0.01)  # as ReduceLROnPlateau does
        callback.on_train_batch_begin(0)
        return [*found, float(model.optimizer.learning_rate)]

    for each in together(2, rates):
        assert each == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4, 0.4, 0.01])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"checkpoint_every": 0},
            "checkpoint_every is 0 (int); pass a number of steps, a time such as '30s', or 'epoch'",
        ),
        ({"checkpoint_every": True}, "checkpoint_every is True (bool)"),
        ({"checkpoint_every": "often"}, "checkpoint_every ('often') is not a duration"),
        ({"mode": "most"}, "mode ('most') must be 'max' or 'min'"),
        ({"warmup": -1}, "warmup is -1 (int); pass a number of epochs"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        keras_callbacks(Outside().ties(), **options)


def test_the_chief_alone_writes_what_members_share(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    monitored: Any = {"monitor": "loss", "save_weights_only": True}
    users = [
        keras.callbacks.ModelCheckpoint(str(own / "a.weights.h5"), **monitored),
        keras.callbacks.ModelCheckpoint(str(shared / "a.weights.h5"), **monitored),
        keras.callbacks.CSVLogger(shared / "log.csv"),
        keras.callbacks.TensorBoard(own, write_graph=False),
        keras.callbacks.EarlyStopping("loss"),
    ]

    def listed(ring: ThreadRing) -> list[str]:
        ours = keras_callbacks(replace(Outside().ties(ring), own_folders=(str(own),)))
        found = keras.callbacks.CallbackList([*ours, *users], model=built(), epochs=1, steps=4)
        return [
            type(each).__name__
            for each in found.callbacks
            if not type(each).__module__.endswith((".callbacks", ".checkpoint_callbacks"))
        ][-len(users) :]

    chief, other = together(2, listed)
    assert chief == ["ModelCheckpoint", "ModelCheckpoint", "CSVLogger", "TensorBoard", "EarlyStopping"]
    assert other == ["ModelCheckpoint", "SilencedCallback", "SilencedCallback", "SilencedCallback", "EarlyStopping"]


def test_backup_and_restore_is_refused(tmp_path: Path) -> None:
    outside, model = Outside(), built()
    own = keras.callbacks.BackupAndRestore(str(tmp_path))
    with pytest.raises(SpecError, match=re.escape("leave it out, and set how often to save by ctx.keras_callbacks(")):
        model.fit(feed_of("known", None), callbacks=[*keras_callbacks(outside.ties()), own], shuffle=False)
    assert model.seen == []


class Peculiar(keras.callbacks.Callback):
    """Has an attribute that no checkpoint can carry, and may have state methods."""

    def __init__(self, *, keeps_state: bool) -> None:
        super().__init__()
        self.seen: set[int] = set()
        if keeps_state:
            self.get_state = lambda: {"seen": sorted(self.seen)}
            self.set_state = lambda state: self.seen.update(state["seen"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.add(epoch)


@pytest.mark.parametrize("keeps_state", [False, True])
def test_a_state_that_cannot_be_saved_is_reported_once(keeps_state: bool, capsys: pytest.CaptureFixture[str]) -> None:
    memory = Memory()
    for epochs in (2, 3):
        outside, callback = Outside(), Peculiar(keeps_state=keeps_state)
        ours = keras_callbacks(outside.ties(snapshots=memory))
        data: Any = {"x": feed_of("known", outside.position), "shuffle": False}
        member().fit(**data, callbacks=[*ours, callback], epochs=epochs, verbose=0)

    assert callback.seen == ({0, 1, 2} if keeps_state else {2})
    text = "[sparktrain] Peculiar.seen (set) is not saved in checkpoints, and gets its initial value after a restart"
    assert capsys.readouterr().err.count(text) == (0 if keeps_state else 2)


def test_a_monitor_that_is_no_metric_is_an_error() -> None:
    callbacks = callbacks_of(built(), LocalRing(), Outside(), snapshots=Memory(), monitor="los", mode="min")
    callbacks.model.stop_training = False
    with pytest.raises(SpecError, match="monitor 'los' is none of the metrics 'loss'; did you mean 'loss'"):
        callbacks.on_epoch_end(0, {"loss": 1.0})
