"""All parameter servers of a gang, for one member that trains: a step is a push to each, and then a pull.

Imports TensorFlow and Keras.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.config.gang_spec import Role
from sparktrain.errors import RingError, SpecError
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import (
    check_local_optimizer,
    check_optimizer,
    is_sliceable,
    optimizer_bytes,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_client import ShardClient, ShardCopy
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import (
    PieceLayout,
    ShardPlan,
    VariableSpec,
    layout_of,
    plan_shards,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import Sender
from sparktrain.training.notices import notice


@dataclass(frozen=True)
class LivePlaces:
    """A gang, and what its coordinator reports about members that have restarted elsewhere."""

    formation: Formation
    moved: Callable[[int], MemberAddress | None]
    """The place of a rank now, where that is known. Any thread may ask; it does not block."""

    @property
    def servers(self) -> list[int]:
        """The ranks of the parameter servers."""
        return [rank for rank, place in enumerate(self.formation.places) if place.role is Role.PS]

    def endpoint(self, rank: int) -> Endpoint:
        """Where the server of `rank` listens now."""
        place = self.moved(rank) or self.formation.places[rank]
        return Endpoint(place.address, place.port)


Array = NDArray[Any]
T = TypeVar("T")

ANSWER_S = 60.0
"""How long a server may not answer: one that is lost starts again within that."""
POLL_S = 0.2
"""How often the chief looks whether the other members have trained to their ends."""
FOREVER = 2**31
"""Greater than the number of any call of `fit`: the member trains no more."""
OPTIMIZERS = "parameter servers"
"""The name of the optimizers' own variables in a checkpoint."""


class PsModel:
    """The trainable variables of one model. One thread at a time may call it; all methods but `stopped` may block.

    They raise RingError for a server that does not answer in time, and ProtocolError for one that refuses.
    """

    def __init__(
        self,
        places: LivePlaces,
        keys: ServerKeys,
        incarnation: int,
        *,
        slow_s: float,
        answer_s: float = ANSWER_S,
        clock: Clock | None = None,
    ) -> None:
        """`slow_s`: how long this member waits for others, where a server answers. Connects to nothing yet."""
        formation = places.formation
        self.chief = formation.role is Role.CHIEF
        self._rank = formation.rank
        self._places = places
        self._keys = keys
        self._sender = Sender(formation.rank, incarnation)
        self._answer_s = answer_s
        self._slow_s = slow_s
        self._clock = clock or SystemClock()
        self._threads = ThreadPoolExecutor(len(places.servers), "sparktrain-ps")
        self._lock = threading.Lock()
        self._optimizer: Any = None
        self._variables: list[Any] = []
        self._plan = ShardPlan((), ())
        self._shards: list[_Shard] = []
        self._rate = 0.0
        self._fit = 0
        self._restored: list[Any] = []
        self._newest: list[Array] = []
        """The values that this member's variables were given last, in memory of their own."""

    @property
    def local(self) -> bool:
        """Whether this member applies its gradients by itself, and servers average weights."""
        return self._keys.settings.local

    @property
    def variables(self) -> list[Any]:
        """The variables that the servers keep, once they have them."""
        return list(self._variables)

    @property
    def has_started(self) -> bool:
        """Whether the servers have variables, and this member has pulled them."""
        return bool(self._shards)

    @property
    def stopped(self) -> bool:
        """Whether another member has stopped this call of `fit` before its end. Any thread may ask."""
        return any(shard.client.standing.stopped >= self._fit for shard in self._shards)

    def start(self, optimizer: Any, variables: Sequence[Any], fit: int = 1) -> None:
        """Give `variables` the values of the servers, which the chief fills: before each call of `fit`, by its number.

        Raises SpecError for an optimizer or variables that servers cannot train.
        """
        with self._lock:
            self._fit = fit
            if self._shards:
                self._check_same(optimizer, variables)
                self._refill()
            else:
                self._connect(optimizer, variables)
            self._assign(self._pulled())

    def check(self, optimizer: Any, servers: int = 1) -> None:
        """Raise SpecError for an optimizer that cannot train by `servers` in this mode."""
        if self.local:
            check_local_optimizer(optimizer)
        else:
            check_optimizer(optimizer, servers)

    def check_rate(self, rate: float) -> None:
        """Raise SpecError for another learning rate than the optimizer had at first."""
        # A variable of Keras has the rate in single precision, and Python's number differs from that.
        if np.float32(rate) != np.float32(self._rate):
            raise SpecError(
                f"the learning rate of the optimizer was changed from {self._rate:g} to {rate:g} while it trains, and "
                "the parameter servers keep theirs: leave that callback out, and pass the optimizer a schedule, such "
                "as keras.optimizers.schedules.CosineDecay"
            )

    def step(self, rate: Any, *gradients: Array) -> list[Array]:
        """Push `gradients`, one for each variable, and return the variables after that, in memory of their own.

        `rate` is the learning rate that the optimizer has now. Raises SpecError: see `check_rate`.
        """
        with self._lock:
            self.check_rate(float(rate))

            def push(shard: _Shard) -> None:
                shard.push(self._plan.scatter(gradients, shard.index))

            self._map_shards(push)
            return self._pulled()

    def exchange(self, *values: Array) -> list[Array]:
        """Push what this member has trained since its variables were given values last, and return the newest ones.

        `values`: those of all variables now. The result is in memory of its own.
        """
        with self._lock:
            alone = self._keys.settings.workers == 1  # see `AddDifferences`
            trained = values if alone else [now - base for now, base in zip(values, self._newest, strict=True)]
            self._map_shards(lambda shard: shard.push(self._plan.scatter(trained, shard.index)))
            pulled = self._pulled()
            self._keep(pulled)
            return pulled

    def end(self, fit: int, *, stops: bool) -> None:
        """This member has trained a call of `fit` to its end; `stops`: before its last step, so that all others stop.

        The chief waits for the ends of all other members, and then has the final variables.
        """
        with self._lock:
            self._leave(fit, stops)
            if self.chief:
                self._await_others(fit, stops)
                self._assign(self._pulled())

    def saved(self) -> list[dict[str, Any]]:
        """What the servers' optimizers know, for a checkpoint. The chief's variables get the values of that moment."""
        with self._lock:
            copies = self._map_shards(lambda shard: shard.client.save())
            values = self._empty()
            for shard, copy in zip(self._shards, copies, strict=True):
                self._plan.gather(shard.layout.views(copy.values), shard.index, values)
            self._assign(values)
            return [_packed(copy) for copy in copies]

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Take over what `saved` has returned, before `begin`; the variables are restored with the model."""
        self._restored = saved

    def close(self) -> None:
        """Leave the servers for good, without waiting for other members. A second call does nothing."""
        with self._lock:
            if self._shards:
                self._leave(FOREVER, False)
            for shard in self._shards:
                shard.client.close()
            self._shards = []
            self._threads.shutdown()

    # ---- start

    def _connect(self, optimizer: Any, variables: Sequence[Any]) -> None:
        servers = len(self._places.servers)
        self.check(optimizer, servers)
        specs = [VariableSpec(weight.path, tuple(weight.shape), _value(weight).dtype.name) for weight in variables]
        plan = plan_shards(specs, servers, sliceable=self.local or is_sliceable(optimizer))
        _check_constraints(variables)
        self._optimizer = optimizer
        self._variables = list(variables)
        self._plan = plan
        self._rate = 0.0 if self.local else learning_rate(optimizer)
        shards = [self._shard(index) for index in range(servers)]
        if self.chief:
            restored = self._restored_copies(servers)
            values = [_value(variable) for variable in variables]
            self._shards = shards
            try:
                self._map_shards(lambda shard: self._fill(shard, values, restored[shard.index]))
            except BaseException:
                self._shards = []
                raise
        self._shards = shards

    def _shard(self, index: int) -> "_Shard":
        layout = self._plan.layout(index)
        rank = self._places.servers[index]
        answer_s = self._answer_s
        slow_s = self._slow_s
        client = ShardClient(
            index, layout, self._sender, self._keys.member, lambda: self._places.endpoint(rank), budget_s=answer_s,
            slow_s=slow_s, clock=self._clock,
        )  # fmt: skip
        return _Shard(index, layout, client)

    def _fill(self, shard: "_Shard", values: Sequence[Array], copy: ShardCopy, *, replaces: bool = False) -> None:
        filled = replace(copy, values=shard.packed(self._plan.scatter(values, shard.index)))
        rule = b"" if self.local else optimizer_bytes(self._optimizer, self._plan, shard.index)
        shard.client.fill(self._keys.settings, filled, rule, replaces=replaces)

    def _restored_copies(self, servers: int) -> list[ShardCopy]:
        nothing = [ShardCopy(0, memoryview(b""))] * servers
        if not self._restored or self.local:
            return nothing
        if len(self._restored) != servers:
            notice(
                f"the checkpoint is of a gang with ps={len(self._restored)}, and this one has ps={servers}: the "
                "optimizer starts without its history, such as momentum"
            )
            return nothing
        return [_unpacked(saved_shard) for saved_shard in self._restored]

    def _check_same(self, optimizer: Any, variables: Sequence[Any]) -> None:
        has_same_variables = list(map(id, variables)) == list(map(id, self._variables))
        if optimizer is not self._optimizer or not has_same_variables:
            raise SpecError(
                "a gang with parameter servers trains one model with one optimizer, and this call of fit() has another "
                "optimizer or other trainable variables: train it in a run of its own"
            )

    def _refill(self) -> None:
        """Send what the function has changed since the last call of `fit`, such as the weights of the best epoch."""
        now = [_value(variable) for variable in self._variables]
        if not self.chief or all(np.array_equal(*pair) for pair in zip(now, self._newest, strict=True)):
            return
        self._map_shards(lambda shard: self._fill(shard, now, shard.client.save(), replaces=True))

    # ---- steps

    def _map_shards(self, call: "Callable[[_Shard], T]") -> list[T]:
        """What `call` returns for each shard; all at once."""
        return list(self._threads.map(call, self._shards))

    def _pulled(self) -> list[Array]:
        """The newest variables. TensorFlow takes the arrays over: none is written to again."""
        values = self._empty()
        self._map_shards(lambda shard: self._plan.gather(shard.pulled(), shard.index, values))
        return values

    def _empty(self) -> list[Array]:
        return [np.empty(spec.shape, spec.dtype) for spec in self._plan.variables]

    def _assign(self, values: Sequence[Array]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        self._keep(values)

    def _keep(self, values: Sequence[Array]) -> None:
        """TensorFlow may train on in the memory of `values`."""
        self._newest = [value.copy() for value in values]

    # ---- end

    def _leave(self, fit: int, stops: bool) -> None:
        self._map_shards(lambda shard: shard.client.leave(fit, stops=stops))

    def _await_others(self, fit: int, stops: bool) -> None:
        started_at = self._clock.now()
        last_versions = [-1]
        while not any(shard.client.standing.all_ended(fit, self._rank) for shard in self._shards):
            versions = [shard.client.newest for shard in self._shards]
            if versions != last_versions:
                started_at = self._clock.now()
                last_versions = versions
            if self._clock.now() - started_at >= self._slow_s:
                ended = self._shards[0].client.standing.ended
                late = [rank for rank, ended_fit in enumerate(ended) if ended_fit < fit and rank != self._rank]
                raise RingError(
                    f"rank {', '.join(map(str, late))} trained no step for {self._slow_s:g} s after the chief's last; "
                    "see its log"
                )
            self._clock.pause(POLL_S)
            self._leave(fit, stops)


class _Shard:
    """One server, and the memory for its messages."""

    def __init__(self, index: int, layout: PieceLayout, client: ShardClient) -> None:
        self.index = index
        self.layout = layout
        self.client = client
        self._sent = memoryview(bytearray(layout.nbytes))
        self._received = [memoryview(bytearray(layout.nbytes)) for _ in range(2)]

    def push(self, pieces: Sequence[Array]) -> None:
        """Send gradients."""
        self._write(pieces, self._sent)
        self.client.push(self._sent)

    def pulled(self) -> list[Array]:
        """The newest values, in memory that the next but one pull overwrites."""
        self._received.reverse()
        self.client.pull(self._received[0])
        return self.layout.views(self._received[0])

    def packed(self, pieces: Sequence[Array]) -> memoryview:
        """`pieces` as the bytes of a message, in memory of their own."""
        buffer = memoryview(bytearray(self.layout.nbytes))
        self._write(pieces, buffer)
        return buffer

    def _write(self, pieces: Sequence[Array], buffer: memoryview) -> None:
        for view, piece in zip(self.layout.views(buffer), pieces, strict=True):
            view[:] = piece


def learning_rate(optimizer: Any) -> float:
    """The learning rate of a Keras optimizer that is a number; 0 for a schedule, which the servers follow."""
    held = optimizer._learning_rate
    return float(held.numpy()) if hasattr(held, "numpy") else 0.0


def _value(variable: Any) -> Array:
    return np.ascontiguousarray(variable.numpy())


def _check_constraints(variables: Sequence[Any]) -> None:
    bound = [variable.path for variable in variables if getattr(variable, "constraint", None) is not None]
    if bound:
        raise SpecError(
            f"variable {bound[0]!r} has a constraint, and parameter servers apply none: leave kernel_constraint and "
            "its like out, or choose backend 'horovod' or 'tensorflow'"
        )


def _packed(copy: ShardCopy) -> dict[str, Any]:
    slots = np.frombuffer(copy.slot_values, np.uint8)
    return {
        "version": copy.version,
        "dtypes": list(copy.slots.dtypes),
        "sizes": list(copy.slots.sizes),
        "slots": slots,
    }


def _unpacked(saved: Mapping[str, Any]) -> ShardCopy:
    layout = layout_of(list(zip(saved["dtypes"], saved["sizes"], strict=True)))
    return ShardCopy(saved["version"], memoryview(b""), layout, memoryview(saved["slots"].tobytes()))
