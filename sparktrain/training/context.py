"""The `ctx` argument of a training function: what it knows of its run, and how it reports to it."""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparktrain.base.clock import Clock
from sparktrain.base.optional_packages import require, require_tensorflow
from sparktrain.config.environment import TENSORFLOW
from sparktrain.config.param_values import did_you_mean
from sparktrain.errors import SpecError
from sparktrain.protocol.pipe_messages import Assignment, Entered, Reported, Stepped, Unsaved
from sparktrain.rundir.layout import STEPS
from sparktrain.state.outcome import Report
from sparktrain.training.agent_pipe import AgentWire, Wire
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.imported import data_owner, distribution_of, feeds_of, fit_feeds, from_framework
from sparktrain.training.gang_join import RING_TIMEOUT_S, JoinedGang, alone
from sparktrain.training.judgement import Judgement
from sparktrain.training.learning_rates import scale_lr, warmup_lr
from sparktrain.training.metrics import passed_count, reported_metrics, size_problem
from sparktrain.training.notices import notice

if TYPE_CHECKING:
    from sparktrain.training.checkpoint.memory_checkpoints import MemoryCheckpoints
    from sparktrain.training.checkpoint.saver import CheckpointSaver
    from sparktrain.training.data.open_data import OpenData
    from sparktrain.training.data.stream.open_streams import OpenStreams
    from sparktrain.training.data.stream.stream_data import StreamData
    from sparktrain.training.data.training_data import TrainingData

SNAPSHOTS = "snapshots"
"""The folder beside the log directory with snapshots of the chief for its agent."""


class TrainContext:
    """One member's view of its trial. It belongs to the process that calls the function, not to forks of it."""

    def __init__(self, assignment: Assignment, wire: Wire, clock: Clock, gang: JoinedGang | None = None) -> None:
        self._assignment = assignment
        self._call = assignment.call
        self._gang = gang or alone()
        if assignment.log_path:  # a function in a test of its user has no folder for files of sparktrain
            self._gang.log_steps(Path(assignment.log_path).with_name(STEPS))
        self._params = MappingProxyType(assignment.call.params)
        self._wire = wire
        self._judgement = Judgement(wire, clock)
        self._clock = clock
        self._pid = os.getpid()
        self._reporting = threading.Lock()
        self._left_out: set[str] = set()
        self._reported: dict[str, float] = {}
        self._checkpoints: CheckpointSaver | None = None
        self._position = Position(self._gang.rank_now)
        self._strategies: Any = None
        self._data: OpenData | None = None
        self._streams: OpenStreams | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of this trial by name, equal to the arguments of the function; read-only."""
        return self._params

    @property
    def metric(self) -> str | None:
        """The metric of the run; None where it names none."""
        return self._call.metric

    @property
    def reported(self) -> Mapping[str, float]:
        """The newest value of each metric that this process has reported; read-only."""
        return MappingProxyType(self._reported)

    @property
    def next_step(self) -> int:
        """The step after the last one that was reported, from 0: for programs that count no steps."""
        return self._position.reported + 1

    @property
    def trial(self) -> int:
        """The number of the trial in its run, from 0."""
        return self._assignment.member.trial

    @property
    def seed(self) -> int:
        """The seed of the trial, an integer: equal in each generation, different in each trial.

        With `repeats=` or `folds=` it differs between repeats alone, and is the same for the same repeat of all
        parameters. It seeds the generators of Python, numpy and Keras before the function runs.
        """
        return self._call.seed

    @property
    def fold(self) -> int:
        """The fold of the data that this trial leaves out, from 0 to `folds - 1`; 0 without `folds=`."""
        return self._call.replica.fold

    @property
    def folds(self) -> int:
        """The number of folds, as of `sparktrain.sweep`; 1 for no cross-validation."""
        return self._call.replica.folds

    @property
    def repeat(self) -> int:
        """Which repeat of its parameters this trial is, from 0 to `repeats - 1`; 0 without `repeats=`."""
        return self._call.replica.repeat

    @property
    def rank(self) -> int:
        """The number of this member, from 0 to `size - 1`, among those that the gang has now; rank 0 is the chief."""
        self._gang.read_rank()
        return self.member_rank

    @property
    def size(self) -> int:
        """The number of members that the gang has now; 1 for an ordinary trial."""
        return self._gang.standing(self._assignment)[1]

    @property
    def local_rank(self) -> int:
        """The number of this member among the members of its gang on this machine, or in this pod, from 0."""
        return self._gang.read_rank().local_rank

    @property
    def role(self) -> str:
        """The role of this member: `chief`, `worker`, `ps` or `evaluator`."""
        return self._gang.read_rank().role.value

    @property
    def index(self) -> int:
        """The number of this member among those with its role, from 0."""
        return self._gang.read_rank().index

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """The `address:port` of the members of each role, an argument for `tf.train.ClusterSpec`."""
        return self._gang.formation.cluster_spec()

    @property
    def generation(self) -> int:
        """How often the trial's gang has started, from 1; more than 1 after a restart."""
        return self._assignment.member.generation

    @property
    def log_dir(self) -> str:
        """The path of a local directory for TensorBoard or other files; the run directory stores what is in it."""
        return self._assignment.log_dir

    def report(self, step: int | None = None, /, **metrics: float) -> None:
        """Report metrics of a finished step. Does not block. Any thread may call it, on any rank.

        `step` is an integer from 0 that grows with each report; a metric is a real number, including NaN, or a scalar
        array or tensor. Other values are left out, with a notice. `result.history()` has every report; the run shows
        those of the chief. A metric may have any name: `step=` is one too when the first argument is the step, and the
        step itself when there is none.

        Raises:
            ValueError: the step does not grow or is 2**63 or more, or there are more than 10,000 metrics.
            TypeError: the step is not an integer, or the metric of the run is not a number.
            RuntimeError: the function has forked this process.
            OSError: the agent is gone.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(f"ctx.report() belongs to process {self._pid}, and process {os.getpid()} called it")
        # Keras passes its logs by name: a metric called step, or self, ended `fit` after its first epoch.
        count = passed_count(metrics.pop("step", None) if step is None else step, "ctx.report", "step")
        values, rejects = reported_metrics(metrics, self._call.metric)
        if problem := size_problem(values):
            raise ValueError(f"ctx.report(step={count}) has {problem}: write them to a file in ctx.log_dir")
        with self._reporting:
            if count <= self._position.reported:
                raise ValueError(
                    f"ctx.report(step={count}) came after step {self._position.reported}: steps must grow, "
                    "over all epochs and all calls of fit()"
                )
            time = self._clock.wall()
            self._wire.send(Reported(Report(count, values, time), self._judgement.reported(count)))
            self._position.reported = count
            self._reported |= values
            for name in rejects.keys() - self._left_out:
                self._left_out.add(name)
                notice(f"ctx.report(): {name!r:.100} is {rejects[name]}, and not a number, so reports leave it out")

    def should_stop(self) -> bool:
        """Whether the run asks this trial to stop: then return the result so far. Any thread may call it.

        With a `stopper=`, the chief's first call after a report that a rule judges waits for that, 1 s at most.
        """
        return self._judgement.stop()

    def ask_sampler(self, question: bytes, timeout_s: float | None) -> tuple[bytes, str] | None:
        """The sampler's answer, or why there is none; None when nothing came in time, and at once without a timeout.

        For `sparktrain.optuna`, in one thread. Raises OSError when the agent is gone.
        """
        reply = self._wire.ask(question, timeout_s)
        return None if reply is None else (reply.answer, reply.problem)

    @property
    def checkpoint(self) -> "CheckpointSaver":
        """Saves and restores the training: a `sparktrain.CheckpointSaver`.

        Keras callbacks do both. A loop of your own calls `restore` on every rank before it trains, `save` on rank 0.
        """
        if self._checkpoints is None:
            from sparktrain.training.checkpoint.saver import CheckpointSaver

            scratch = Path(self.log_dir).parent / SNAPSHOTS
            restore_dir = self._assignment.restore_dir
            arrive = self._gang.arrival(self._assignment)
            self._checkpoints = CheckpointSaver(
                self._wire, scratch, restore_dir, self.member_rank, self._clock, size=self.size, arrive=arrive
            )
            self._checkpoints.rank_now = self._position.rank_now
        return self._checkpoints

    def memory_checkpoints(
        self, model: Any = None, *parts: Any, every: str = "auto", resizable: bool = False
    ) -> "MemoryCheckpoints":
        """Memory checkpoints for a loop of your own: a `sparktrain.MemoryCheckpoints`, for a `with` block.

            with ctx.memory_checkpoints(model, optimizer, scheduler) as memory:
                for step in range(done + 1, steps + 1):
                    loss = memory.train(train_step, batch)
                    memory.step(step)

        Every member enters the block after `ctx.checkpoint.restore`, and with what that gets. After a loss all continue
        from the newest copy in the shared memory of a host, and repeat few steps; with `memory.train` the others keep
        their processes, where the gang can, and repeat none. `every` is "auto", for 2 % of the time at most, or a time
        such as "5s". With `resizable`, `train_step` chooses its rows by `ctx.rank` and `ctx.size`, and by `min_workers`
        the others continue at once without a lost member. The block of a member alone, and of a gang without a ring,
        only reports steps. Blocks at the first use of the ring.

        Raises SpecError for another `every`, or `resizable` beside a feed, TypeError for what has no state, FormError.
        """
        from sparktrain.training.checkpoint.memory_checkpoints import MemoryCheckpoints, boundary_of, loop_of

        self._hold_memory()
        boundary = boundary_of(self._gang, self.size, every, self._clock, self._judgement)
        saved_parts = parts if model is None else (model, *parts)
        loop = loop_of(saved_parts, self._gang.healing, boundary, self._position, resizable=resizable)
        self.checkpoint.are_alike = lambda: loop is not None and loop.are_alike
        start = max(0, self.checkpoint.newest_step)
        return MemoryCheckpoints(
            saved_parts, boundary, self._stepped, self._clock, start, loop=loop, judgement=self._judgement
        )

    def export(self, model: Any) -> None:
        """Keep the finished model in the run directory; on ranks other than 0 it does nothing. The newest one counts.

        `model` is a Keras model, which becomes `model.keras`, a module of PyTorch (its weights, as safetensors) or a
        program of `torch.export.export` or TorchScript, an estimator of scikit-learn (a file of skops where that
        is installed, else of joblib), a model of XGBoost or LightGBM (in their own formats), or the path of a file or
        folder that the function has written. `result.load_model()` loads it, and `model_path` is where it is.

        Blocks on the local disk. Raises SpecError for any other object, OSError, and what the library of the model
        raises.
        """
        from sparktrain.training.export import export

        export(model, Path(self.log_dir).parent, self.member_rank)

    def prepare_sessions(self) -> None:
        """Have sessions of TensorFlow 1 train as a gang does; sparktrain calls it before a program that starts them."""
        from_framework("install_sessions")(
            formation=self._gang.formation,
            saver=self.checkpoint,
            stepped=self._stepped,
            serves=lambda: self._wire.send(Entered(os.getpid())),
            log_dir=self.log_dir,
            own_folders=(self._assignment.work_dir, str(Path(self.log_dir).parent)),
            clock=self._clock,
        )

    def finish(self, *, returned: bool = False) -> None:
        """Wait for the last save after the end of the training function; sparktrain calls it.

        `returned`: the function ended by itself. The other members then wait for no part of a checkpoint from here.
        """
        if returned and self._call.gang.size > 1 and os.getpid() == self._pid:
            newest = -1 if self._checkpoints is None else self._checkpoints.newest_step
            with suppress(OSError):  # the agent is gone
                self._wire.send(Unsaved(newest + 1, "", disk=False, part=True, returned=True))
        if self._streams is not None:
            self._streams.close()
        if self._gang.memory is not None:
            self._gang.memory.close()
        if self._checkpoints is not None:
            self._checkpoints.finish()
        self._gang.close_step_log()

    def strategy(self, kind: str | None = None, **options: Any) -> Any:
        """A `tf.distribute.Strategy` for this gang, or for the devices of this member.

        `kind` is "multi_worker_mirrored", "parameter_server", "mirrored", "central_storage" or "one_device"; None
        chooses by the roles of the gang. Their options: see
        `sparktrain.training.frameworks.tensorflow.strategies.strategy.Strategies.strategy`. Call it in the main thread
        before any TensorFlow op. The first two kinds block until the other members call it. Raises SpecError,
        StrategyError, FormError.
        """
        require_tensorflow("ctx.strategy()", "use ctx.distribute(optimizer)")
        if self._strategies is None:
            gang = self._gang
            backend = self._call.gang.backend
            self._strategies = from_framework("Strategies")(
                gang.formation,
                backend,
                gang.release_port,
                timeout_s=RING_TIMEOUT_S,
                clock=self._clock,
                connected=lambda: gang.connected,
                homes=gang.homes,
            )
        return self._strategies.strategy(kind, **options)

    # ---- the gang's ring

    def distribute(self, optimizer: Any, *, compression: str = "none") -> Any:
        """Make a Keras 3 `optimizer` average its gradients over all members; returns `optimizer` itself.

        Every member calls it before `compile()`. `compression` is the type in which gradients are sent: "none" for
        their own, "fp16" or "bf16"; Keras on JAX takes "none" alone. A saved model has the plain optimizer. Blocks only
        at the first use of the ring. For a model of PyTorch it returns its `DistributedDataParallel`, and blocks until
        all members call it; without other members it returns the model itself. Raises SpecError, FormError.
        """
        return distribution_of(optimizer).distribute(optimizer, self._gang, compression=compression)

    def distribute_tape(self, tape: Any, *, compression: str = "none") -> Any:
        """Wrap a `tf.GradientTape` so that `gradient()` averages over all members; it also takes Keras variables.

        Every member uses it in each step; `gradient()` blocks until all do. `compression`: as for `distribute`. Raises
        SpecError, FormError.
        """
        require_tensorflow("ctx.distribute_tape()", "use ctx.distribute(optimizer)")
        ring = from_framework("known_ring")(self._gang, "ctx.distribute_tape()")
        return from_framework("distribute_tape")(tape, ring, compression=compression)

    def shard(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        uneven: str = "drop",
        shuffle: bool = False,
        seed: int | None = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> Any:
        """This member's share of `data`, for `fit`: each batch once in an epoch, over all members.

        It is a `tf.data.Dataset`; where Keras runs on another backend, it is an iterable of batches of NumPy's arrays.

        All members have the same number of steps; after a restart training resumes in the middle of the epoch. Every
        member calls it with the same data. Does not block. See
        `sparktrain.training.frameworks.tensorflow.data.shard.shard`.

        A `DataLoader` of PyTorch becomes a `DataLoader` with a share of its samples in each epoch, and with
        `state_dict`: see `sparktrain.training.frameworks.torch.torch_loader.shard`.

        Args:
            data: a dataset of batches, arrays such as `(x, y)` or `(x, y, sample_weight)` with examples along the first
                axis, or a function that returns an iterator over batches.
            batch_size: examples in one member's batch; for arrays only.
            uneven: what to do with a last step that lacks examples: "drop", "repeat" or "pad".
            shuffle: whether to draw a new order of the examples for each epoch; for arrays only.
            seed: the seed of `shuffle`, by default `ctx.seed`.
            class_weight: weights by class, in place of the argument of `fit`.

        Raises SpecError.
        """
        framework = data_owner(data)
        package = fit_feeds() if framework is None else framework.module
        if package == TENSORFLOW:
            require_tensorflow("ctx.shard()", "pass the arrays to fit(), or use ctx.dataset(...).iter_batches()")
        return feeds_of(package).shard(
            data,
            rank=self.member_rank if package == "torch" or (framework is None and package == TENSORFLOW) else self.rank,
            size=self._gang.readers or self.size,
            batch_size=batch_size,
            uneven=uneven,
            shuffle=shuffle,
            seed=self.seed % 2**31 if seed is None else seed,
            class_weight=class_weight,
            position=self._position,
        )

    def dataset(self, name: str, *, whole: bool = False) -> "TrainingData":
        """The dataset `name` of `data=`, for this member: `to_tf()` for `fit`, `iter_batches()`, `to_numpy()`.

        Every member of a gang calls it, and gets its balanced share of the rows; with `whole`, this member gets all of
        them, such as the chief to evaluate, and its feeds of them do not resume. Blocks on the store the first time,
        for the manifest only. See `sparktrain.training.data.training_data.TrainingData`.

        Raises SpecError for an unknown name, DataError, StoreError.
        """
        if name in self._call.streams.feeds:
            raise SpecError(f"ctx.dataset({name!r}): data[{name!r}] is a stream; read it by ctx.stream({name!r})")
        if self._data is None:
            from sparktrain.training.data.open_data import OpenData

            share = self.rank, self._gang.readers or self.size
            self._data = OpenData(self._call.data, *share, self.seed % 2**31, self._position)
        return self._data.get(name, whole)

    def stream(self, name: str) -> "StreamData":
        """The stream `name` of `data=`, for this member: `to_tf()` for `fit`, `iter_batches()`, `next_batch()`.

        Every member of a gang calls it. Blocks until a socket listens. See
        `sparktrain.training.data.stream.stream_data.StreamData`. Raises SpecError for an unknown name, StreamError.
        """
        feeds = self._call.streams.feeds
        if name not in feeds or not isinstance(self._wire, AgentWire):
            hint = f"this run has {', '.join(map(repr, feeds))}" if feeds else "this run was given no stream"
            raise SpecError(f"ctx.stream({name!r}): {hint}{did_you_mean(name, feeds)}; see ctx.dataset for other data")
        if self._streams is None:
            from sparktrain.training.data.stream.open_streams import OpenStreams

            self._streams = OpenStreams(self._call.streams, self._assignment.address, self._wire, self._gang)
        return self._streams.get(name)

    def scale_lr(self, lr: float) -> float:
        """`lr` times the members that train, because a step uses a batch of each (arXiv 1706.02677, section 2.1).

        Raises SpecError for a rate that is not a number from 0.
        """
        return scale_lr(lr, self._gang.readers or self.size)

    def warmup_lr(self, optimizer: Any, steps: int) -> Any:
        """A `LambdaLR` of PyTorch: the rate of `optimizer` rises from that of one member in `steps` calls of `step()`.

        The optimizer gets the rate of `scale_lr`; then the schedule multiplies it by 1 divided by the members at first,
        and by 1 from step number `steps` on (arXiv 1706.02677, section 2.2). `SequentialLR` and `ChainedScheduler` join
        it to other schedules. For Keras see `warmup` of `keras_callbacks`, and `sparktrain.Warmup`.

        Raises SpecError for what is no optimizer of PyTorch, and for less than one step.
        """
        return warmup_lr(optimizer, steps, self._gang.readers or self.size)

    def keras_callbacks(
        self,
        *,
        checkpoint_every: int | str | None = "epoch",
        memory_checkpoint: str | None = "auto",
        keep: int = 2,
        monitor: str | None = None,
        mode: str | None = None,
        warmup: int = 0,
    ) -> list[Any]:
        """The callbacks for one call of `fit`, in a gang and alone: put your own after them in the list.

        They start all members with the chief's weights, average metrics over members, report each epoch, stop on
        request, save checkpoints and resume from them. Every member calls it. It blocks only at the first use of the
        ring.

        Args:
            checkpoint_every: a number of steps, a time such as "30s", "epoch", or None for never.
            memory_checkpoint: how often a gang takes snapshots in shared memory, which it resumes from while a holder
                is left: "auto" for at most 2 % of the time, a time such as "5s", or None for never.
            keep: how many of the newest checkpoints stay, besides the best one by `monitor`.
            monitor: the metric of the best checkpoint, such as "val_loss"; None for no best one.
            mode: "max" or "min", by default inferred from the name of the metric ("min" for a loss).
            warmup: epochs in which the learning rate rises from that of one member.

        Raises SpecError, FormError.
        """
        from_framework("training_ring")(self._gang, "ctx.keras_callbacks()")
        self._hold_memory()
        callbacks: list[Any] = from_framework("keras_callbacks")(
            self._gang,
            self._position,
            self._clock,
            self.checkpoint,
            self.report,
            self.should_stop,
            self._stepped,
            params=self._params,
            own_folders=(self._assignment.work_dir, self.log_dir),
            memory_checkpoint=memory_checkpoint,
            keep=keep,
            checkpoint_every=checkpoint_every,
            monitor=monitor,
            mode=mode,
            warmup=warmup,
        )
        return callbacks

    def jax_key(self) -> Any:
        """A key of JAX made from `seed`, for `jax.random`: JAX has no global generator that the trial could seed.

        Equal in each call and each generation. Raises SpecError where JAX is not installed.
        """
        require("jax", "ctx.jax_key()")
        return from_framework("jax_key")(self.seed)

    def xgboost_callback(self, *, metric: str | None = "auto", checkpoint_every: int | None = 10, keep: int = 2) -> Any:
        """The callback for one training of XGBoost: it reports each round, stops, saves checkpoints and resumes.

            boosting = ctx.xgboost_callback()
            xgboost.train(params, data, boosting.remaining(500), evals=[(valid, "valid")],
                          xgb_model=boosting.init_model, callbacks=[boosting])
            return boosting.metrics

        `XGBClassifier` and its siblings take `n_estimators=boosting.remaining(500)` and `callbacks=[boosting]`, and
        their `fit` takes `xgb_model=boosting.init_model`. Evaluations have names such as `valid_logloss`: the name of
        the set, and that of the metric. `init_model` is the booster of the newest checkpoint, None without one;
        `metrics` has what the newest round reported. Blocks on the local disk.

        Args:
            metric: the evaluation that is the run's metric, by default the one of its name, with `-` or `_`; None where
                the function computes that metric by itself.
            checkpoint_every: a number of rounds, or None: no checkpoints, and no resume.
            keep: how many of the newest checkpoints stay.

        Raises SpecError, also where XGBoost is not installed; UserError for a checkpoint without a booster of XGBoost;
        CheckpointError.
        """
        require("xgboost", "ctx.xgboost_callback()")
        callback = from_framework("XGBoostCallback")
        return callback(self._boosting_member(), metric=metric, checkpoint_every=checkpoint_every, keep=keep)

    def lightgbm_callback(
        self, *, metric: str | None = "auto", checkpoint_every: int | None = 10, keep: int = 2
    ) -> Any:
        """The callback for one training of LightGBM: it reports each round, stops, saves checkpoints and resumes.

            boosting = ctx.lightgbm_callback()
            lightgbm.train(params, data, boosting.remaining(500), valid_sets=[valid], valid_names=["valid"],
                           init_model=boosting.init_model, callbacks=[boosting])
            return boosting.metrics

        `LGBMClassifier` and its siblings take `n_estimators=boosting.remaining(500)`, and their `fit` takes
        `init_model=boosting.init_model` and `callbacks=[boosting]`. The rest is as for `xgboost_callback`: names, such
        as `valid_binary_logloss`, arguments, and errors. Blocks on the local disk.
        """
        require("lightgbm", "ctx.lightgbm_callback()")
        callback = from_framework("LightGBMCallback")
        return callback(self._boosting_member(), metric=metric, checkpoint_every=checkpoint_every, keep=keep)

    def allreduce(self, value: Any, *, average: bool = True) -> Any:
        """The mean, or the sum, over all members of a number, an array, a tensor, or nested lists and dicts of them.

        Every member calls it, with equal shapes and types; it blocks until all do. The result has the kinds and shapes
        of `value`. Raises RingError, FormError, and TypeError for a value that is not a number.
        """
        ring = self._gang.ring
        return ring.values_of(value).allreduce(ring, value, average=average)

    def broadcast(self, value: Any) -> Any:
        """The chief's value of a number, an array, a tensor, or nested lists and dicts of them.

        Every member calls it, with equal shapes and types; it blocks until all do. Raises RingError, FormError, and
        TypeError for a value that is not a number.
        """
        ring = self._gang.ring
        return ring.values_of(value).broadcast(ring, value)

    def allgather(self, value: Any) -> Any:
        """Concatenate the arrays or tensors of all members by rank, along the first axis, which may differ in length.

        Every member calls it, with equal types and equal other axes; it blocks until all do. Numbers give an array with
        one element for each member. Raises RingError, FormError, and TypeError for a value that is not a number.
        """
        ring = self._gang.ring
        return ring.values_of(value).allgather(ring, value)

    # ---- internal

    @property
    def member_rank(self) -> int:
        """As `rank`, for sparktrain: a process that waits for a place follows where its rank changes."""
        return self._gang.standing(self._assignment)[0]

    def _boosting_member(self) -> Any:
        return from_framework("BoostingMember")(
            report=self.report,
            should_stop=self.should_stop,
            checkpoints=self.checkpoint,
            rank=self.rank,
            metric=self._call.metric,
        )

    def _hold_memory(self) -> None:
        """Have this member take its snapshots in shared memory, where there is any."""
        if self._gang.memory is None and self._assignment.memory_dir:
            from sparktrain.training.checkpoint.memory_saver import MemorySaver

            may_grow = self._call.gang.may_grow
            self._gang.memory = MemorySaver(self._wire, self._assignment.memory_dir, may_grow, self._gang.turns)

    def _stepped(self, step: int, training: bool) -> None:
        self._wire.send(Stepped(step, training, self._gang.step_times()))
