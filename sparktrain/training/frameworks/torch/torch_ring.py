"""A gang of PyTorch: what torchrun sets up for `init_process_group`, and a ring on its process group.

Rank 0 serves torch's store on the port that it has held since the members exchanged addresses, so that no other process
can take the port in between. The members find it in the environment, as after torchrun: a script that calls
`init_process_group` runs unchanged. The ring uses the group of the script, and makes one at its first collective where
there is none.

A group that the ring makes uses NCCL for tensors on GPUs where each member has a GPU of its own, and else Gloo.

The store and Gloo have no authentication, as torch has it. They listen on the address of the member alone.
"""

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from sparktrain.base.clock import SystemClock
from sparktrain.base.formatting import first_line
from sparktrain.errors import FormError, RingError
from sparktrain.state.topology import Formation
from sparktrain.training.checkpoint.tensor_slices import Array
from sparktrain.training.collectives import barrier, gpu_identity
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.eager_call_log import CLOSING
from sparktrain.training.collectives.eager_ring import EagerRing
from sparktrain.training.collectives.opened_sockets import PeerConnections, open_sockets, without_port
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.collectives.ring_exchange import RingExchange
from sparktrain.training.frameworks.torch import torch_environment
from sparktrain.training.frameworks.torch.leavable_store import LeavableStore
from sparktrain.training.frameworks.torch.stuck_operations import end_if_stuck

_BACKEND = "sparktrain_waiting"
_PREFIX = "sparktrain"
_GLOO = "gloo"
_LAST_S = 5.0
"""How long rank 0 serves the store after all members have come to the end of the ring."""
_WITHOUT_NCCL = "tensors on GPUs travel by Gloo: NCCL needs a GPU of its own for each member"
_CARRIERS = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.bool: torch.uint8}
"""What values of types that Gloo does not sum travel as."""


def join(joining: Joining) -> Ring:
    """See `sparktrain.training.collectives.backend.JoinRing`."""
    formation = joining.formation
    if formation.size == 1:
        return LocalRing()
    if joining.changes.prepared:
        # It holds its port until it has a place: rank 0 serves the store there.
        return TorchRing(joining, None, dist.HashStore())
    server = _served(joining)
    return TorchRing(joining, server, _met(joining, server))


def _served(joining: Joining) -> dist.TCPStore | None:
    """The store of the gang on rank 0; all others release their ports. Raises FormError."""
    server = _serve(joining) if joining.formation.rank == 0 else None
    joining.release_port()
    return server


def _met(joining: Joining, server: dist.TCPStore | None) -> dist.Store:
    """The part of the gang's store for the ring, once all members are there. Raises FormError."""
    barrier.wait_for_all(joining, SystemClock())
    torch_environment.enter(joining.formation, joining.generation)
    # A prefix for each ring: keys of a ring that broke would stand for members that are gone.
    number = joining.changes.number
    prefix = f"{_PREFIX}/{number}" if number else _PREFIX
    return dist.PrefixStore(prefix, server or _connect(joining))


def _serve(joining: Joining) -> dist.TCPStore:
    """The store of the gang, in this process. Raises FormError."""
    mine = joining.formation.mine
    try:
        return dist.TCPStore(
            mine.address,
            mine.port,
            is_master=True,
            timeout=timedelta(seconds=joining.timeout_s),
            wait_for_workers=False,
            master_listen_fd=joining.take_port(),
        )
    except (OSError, RuntimeError) as error:
        raise FormError(
            f"{barrier.this_member(joining.formation)}: torch's store cannot listen on port {mine.port} of "
            f"{mine.address}: {first_line(error)}"
        ) from error


def _connect(joining: Joining) -> dist.TCPStore:
    """A connection to the store of rank 0. Raises FormError."""
    chief = joining.formation.places[0]
    is_left = partial(_is_left, joining)
    try:
        # Torch would try for the whole timeout, also where the members form another ring meanwhile.
        if joining.changes.number and barrier.await_listener(chief, joining.timeout_s, is_left) and is_left():
            raise RuntimeError("another member is lost")
        return dist.TCPStore(chief.address, chief.port, is_master=False, timeout=timedelta(seconds=joining.timeout_s))
    except RuntimeError as error:
        raise FormError(
            f"{barrier.this_member(joining.formation)}: the store of rank 0 on {chief.host} ({chief.address}, port "
            f"{chief.port}) cannot be reached within {joining.timeout_s:g} s: {first_line(error)}; members connect to "
            "each other on any port, so no firewall may be between them"
        ) from error


def _is_left(joining: Joining) -> bool:
    """Whether the members form a later ring than the one that `joining` is for."""
    exchange = joining.exchange
    return isinstance(exchange, RingExchange) and exchange.is_left


class TorchRing(EagerRing):
    """See base class. Made by `join`."""

    framework = "torch"
    keras_averaging = "sparktrain.training.frameworks.keras.eager_average"
    heals = True

    def __init__(self, joining: Joining, server: dist.TCPStore | None, store: dist.Store) -> None:
        """`server` is the store that rank 0 serves, and `store` the part of it for this ring.

        A process that is prepared has neither before it gets its place.
        """
        super().__init__(joining.formation)
        self.numbered = 0
        """Collectives of the group that the ring knows of."""
        self._joining = joining
        self._server = server
        self._store = store
        self._group_store: LeavableStore | None = None
        self._timeout_s = joining.operation_s
        self.peers = PeerConnections()
        """Those of Gloo, in a group that the ring has made."""
        self._backend = ""
        self._passing: dist.ProcessGroup | None = None
        self._carriers: set[str] = set()
        """Of the group: types of devices with tensors that it takes."""
        self._has_own_group = False
        self.is_waiting = False
        """Whether this process has no place in the ring of the others yet."""
        self.on_close: list[Callable[[], object]] = []
        """Called when all members have come to the end of the ring, before it ends."""

    def prepare_passing(self) -> bool:
        """See base class. By another group: that of the user may have NCCL alone, which takes no arrays of the host."""
        with self._failing("new_group"):
            self._passing = self._passing or dist.new_group(backend=_GLOO)
        return True

    def pass_on(
        self, sent: Sequence[tuple[int, Array]], received: Sequence[tuple[int, Array]], timeout_s: float
    ) -> None:
        """Send arrays to other ranks, and fill those of `received` with what their ranks send, in the same order.

        Any thread may call it after `prepare_passing`, also beside collectives, but one at a time. Blocks until all
        have arrived. Raises RingError where a member is gone, or sends nothing within `timeout_s`.
        """
        with self._failing("pass_on"):
            works = [dist.isend(torch.from_numpy(array), rank, self._passing) for rank, array in sent]
            works += [dist.irecv(torch.from_numpy(array), rank, self._passing) for rank, array in received]
            for work in works:
                work.wait(timedelta(seconds=timeout_s))

    def own_store(self, name: str) -> dist.Store:
        """A part of the gang's store for another transport. Each name once: its keys stay until the gang ends."""
        return dist.PrefixStore(name, self._store)

    @property
    def group(self) -> dist.ProcessGroup:
        """The default process group, of the user or of the ring. Blocks until all members make it, if there is none.

        Raises RingError.
        """
        if not dist.is_initialized():
            with self._failing("init_process_group"):
                self._make_group()
        group = dist.group.WORLD
        assert group is not None
        return group

    @property
    def can_leave(self) -> bool:
        """Whether the members can leave their group after a loss: it is one of Gloo, which the ring has made."""
        return self._has_own_group and self._backend == _GLOO and not self.on_close

    @property
    def is_alone(self) -> bool:
        """Whether all collectives of the group so far are those of the ring, and of what `knowing` has called."""
        return self._number() == self.numbered

    @contextmanager
    def knowing(self) -> Iterator[None]:
        """Within the block, collectives of the group are known to the ring."""
        if not self._has_own_group or self._backend != _GLOO:
            yield
            return
        before = self._number()
        yield
        self.numbered += self._number() - before

    def break_off(self) -> None:
        """End all connections of the group to the other members: collectives, also one that is blocked, fail.

        Any thread may call it. It does not block.
        """
        peers = self.peers
        # PyTorch's Gloo forgets to fail an operation with a write that fails: it learns of the end by a read.
        peers.shut_down(socket.SHUT_RD)
        end_if_stuck(peers, lambda: self.peers is peers)

    def start_waiting(self, on_rank_read: Callable[[], object]) -> None:
        """This process waits for a place in the ring of others: it has a group that connects nothing.

        `on_rank_read` is called when the function asks torch, or the variables of torchrun, for the rank.
        """
        self.is_waiting = True
        torch_environment.enter(self.formation, self._joining.generation)
        _start_waiting(self.formation, on_rank_read)
        torch_environment.on_rank_read(on_rank_read)

    def prepare(self) -> None:
        """Nothing has to be ready before the process gets its place."""

    def leave(self) -> None:
        """Leave the group, after `break_off`."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def rejoin(self, formation: Formation, number: int) -> None:
        """Leave the group, and make that of ring `number` with `formation`. Call `break_off` first.

        The rank is another one for a process that waited for any place. Blocks until all members have joined, or form a
        later ring. Raises FormError.
        """
        self.leave()
        changes = replace(self._joining.changes, number=number)
        self._joining = replace(self._joining, formation=formation, changes=changes)
        self.take_place(formation)
        if self.is_waiting:
            self.is_waiting = False
            torch_environment.on_rank_read(None)
            self._server = _served(self._joining)
        self._store = _met(self._joining, self._server)
        try:
            _ = self.group
        except RingError as error:
            raise FormError(str(error)) from error

    def _make_group(self) -> None:
        """Raises RuntimeError."""
        self._backend = self._backends()
        sockets_before = open_sockets()
        timeout = timedelta(seconds=self._timeout_s)
        if self._joining.changes.number:
            # C++ calls back into the Python object, and does not keep it alive.
            self._group_store = self._leavable()
            store = dist.PrefixStore("group", self._group_store)
            dist.init_process_group(self._backend, store=store, rank=self.rank, world_size=self.size, timeout=timeout)
        else:
            dist.init_process_group(self._backend, timeout=timeout)
        # The store outlives the group: other members may be connected to it by this process.
        self.peers = PeerConnections(without_port(open_sockets() - sockets_before, self.formation.places[0].port))
        self._has_own_group = True
        self.numbered = self._number()

    def _leavable(self) -> LeavableStore:
        """The part of the gang's store for this ring, with waits that end once the members form a later one."""
        joining = self._joining
        return LeavableStore(self._store, timedelta(seconds=self._timeout_s), lambda: _is_left(joining))

    def _number(self) -> int:
        """How many collectives the group has had in this process."""
        return int(self.group._get_sequence_number_for_group())

    def _joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([tensor.to(tensors[0].device) for tensor in tensors])

    def _summable(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach()
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj())
        return plain.to(_CARRIERS.get(plain.dtype, plain.dtype)).reshape(-1)

    def _from_sum(self, total: torch.Tensor, like: torch.Tensor, divisor: int) -> torch.Tensor:
        if like.is_complex():
            return torch.view_as_complex(total.reshape(*like.shape, 2)) / divisor
        rounding = None if total.is_floating_point() else "trunc"
        mean = total if divisor == 1 else torch.div(total, divisor, rounding_mode=rounding)
        return mean.to(like.dtype).reshape(like.shape)

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
        return flat.view(torch.uint8).to(self._carrier(tensor.device))

    def _from_bytes(self, flat: torch.Tensor, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return flat.view(like.dtype).reshape(shape).to(like.device)

    def _sum(self, flat: torch.Tensor) -> torch.Tensor:
        total = flat.to(self._carrier(flat.device))
        dist.all_reduce(total)
        return total.to(flat.device)

    def _sent(self, flat: torch.Tensor) -> torch.Tensor:
        dist.broadcast(flat, src=self.source)
        return flat

    def _rows(self, flat: torch.Tensor) -> Sequence[torch.Tensor]:
        mine = flat.to(self._carrier(flat.device))
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(rows, mine)
        return [row.to(flat.device) for row in rows]

    def _carrier(self, device: torch.device) -> torch.device:
        """Where tensors of `device` travel."""
        first = "cpu" if "cpu" in self._carriers else "cuda"
        return device if device.type in self._carriers else torch.device(first)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        self._carriers = {device.type for device in self.group._device_types}
        with self.knowing():
            yield

    def tensor(self, array: Any) -> torch.Tensor:
        """See base class."""
        return torch.from_numpy(array.copy())

    def _end(self) -> None:
        """Rank 0 serves the store until all members have come here."""
        self.calls.note(CLOSING, CLOSING, ())
        with suppress(RuntimeError):  # a member that is gone does not undo the work of the others
            self._meet("closing", self._timeout_s)
            for callback in self.on_close:
                callback()
            # The others still ask the store when rank 0 has its answer.
            self._meet("closed", _LAST_S, waits=self.rank == 0)
        if self._has_own_group and dist.is_initialized():
            dist.destroy_process_group()

    def _backends(self) -> str:
        """The backends of a new group, equal on all members. Blocks until all ask for them. Raises RuntimeError."""
        number = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
        self._store.set(f"gpu/{self.rank}", gpu_identity.gpu_uuid(number) if torch.cuda.is_available() else b"")
        keys = [f"gpu/{rank}" for rank in range(self.size)]
        self._leavable().wait(keys)
        uuids = [self._store.get(key) for key in keys]
        if gpu_identity.each_has_its_own(uuids, self.size):
            return "cpu:gloo,cuda:nccl"
        if any(uuids):
            print(f"[sparktrain] {_WITHOUT_NCCL}", file=sys.stderr)
        return _GLOO

    def _meet(self, stage: str, timeout_s: float, *, waits: bool = True) -> None:
        self._store.set(f"{stage}/{self.rank}", b"")
        if waits:
            self._store.wait([f"{stage}/{rank}" for rank in range(self.size)], timedelta(seconds=timeout_s))


class WaitingGroup(dist.ProcessGroup):  # type: ignore[misc] # torch is not installed where types are checked
    """The group of a process that waits for a place in the ring of others: its operations raise RuntimeError.

    The training function makes its models of `DistributedDataParallel` by it, and learns the size of the gang from it,
    as in a member. The group of the ring replaces it once the process has its place.
    """

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.on_rank_read: Callable[[], object] = lambda: None

    def rank(self) -> int:
        """See base class. `torch.distributed.get_rank` comes here."""
        self.on_rank_read()
        return int(super().rank())


def _start_waiting(formation: Formation, on_rank_read: Callable[[], object]) -> None:
    """Make the default group of a process that is prepared for its place in `formation`.

    `on_rank_read` is called each time that the function asks for its rank. Once for a process. Does not block.
    """

    def make(store: dist.Store, rank: int, size: int, timeout: timedelta) -> WaitingGroup:
        return WaitingGroup(rank, size)

    dist.Backend.register_backend(_BACKEND, make, devices=["cpu"])
    dist.init_process_group(_BACKEND, store=dist.HashStore(), rank=formation.rank, world_size=formation.size)
    group = dist.group.WORLD
    assert isinstance(group, WaitingGroup)
    group.on_rank_read = on_rank_read
