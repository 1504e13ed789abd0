"""Connects programs of `horovod.torch` by the gang that they run in. Imports neither torch nor Horovod.

Horovod's operations for PyTorch have a core of their own, beside that for TensorFlow. `hvd.init()` connects it with the
members that the gang already knows: Gloo's key-value server runs in each member, over the store of the gang.
"""

import atexit
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.config.backends import Backend
from sparktrain.errors import FormError, SpecError

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext
    from sparktrain.training.gang_join import JoinedGang

_MODULE = "horovod.torch"
_ELASTIC = f"{_MODULE}.elastic"
_ALONE = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
"""Without them Horovod looks for MPI, which it is built without."""
_TIMEOUT_S = 30.0
"""How long Gloo waits for a member that does not answer."""
_OPERATION_S = 3600.0
"""How long an operation waits for a member that does not call it: `hang_timeout` decides whether that hangs."""


def connect(gang: "JoinedGang", backend: Backend) -> None:
    """Have `hvd.init()` of later imports of `horovod.torch` connect this gang. Call it before the training function."""
    patch_when_imported(_MODULE, lambda module: _patch(module, gang, backend))


def _patch(module: ModuleType, gang: "JoinedGang", backend: Backend) -> None:
    start = module.init
    leave = module.shutdown

    def init(comm: Any = None, process_sets: Any = None) -> None:
        """Connect Horovod over the members of the gang; a second call does nothing. Blocks until all call it.

        Raises SpecError for another set of members, and in a gang of another backend; FormError.
        """
        if comm is not None:
            raise SpecError("hvd.init(comm=...) of horovod.torch: a gang connects all of its members: leave comm out")
        if module.is_initialized():
            return
        _connect(gang, backend, lambda: start(process_sets=process_sets))
        # At exit it would wait for dead members: the ring leaves together with the living ones.
        atexit.unregister(leave)
        if gang.formation.size > 1:
            gang.ring.on_close.append(leave)  # type: ignore[attr-defined] # of TorchRing

    def shutdown() -> None:
        """Nothing: the members leave Horovod together, when the training function has returned."""

    _put_elastic(module)
    module.init = init  # type: ignore[attr-defined]
    module.shutdown = shutdown  # type: ignore[attr-defined]


def provide(trial: "TrainContext") -> None:
    """Have `hvd.elastic` save and resume by `trial`, once it is imported. Call it before the training function."""

    def put(_: ModuleType) -> None:
        from sparktrain.training.frameworks.torch import horovod_elastic

        horovod_elastic.provide(trial)

    patch_when_imported(_MODULE, put)


def _put_elastic(module: ModuleType) -> None:
    """Have imports of Horovod's own `elastic`, with a driver of its own, find the one over checkpoints of the gang."""
    from sparktrain.training.frameworks.torch import horovod_elastic

    for name in [name for name in sys.modules if name.startswith(f"{_ELASTIC}.")]:
        del sys.modules[name]
    sys.modules[_ELASTIC] = horovod_elastic
    module.elastic = horovod_elastic  # type: ignore[attr-defined]


def _connect(gang: "JoinedGang", backend: Backend, start: Any) -> None:
    formation = gang.formation
    if formation.size == 1:
        os.environ.update({name: value for name, value in _ALONE.items() if name not in os.environ})
        start()
        return
    if backend is not Backend.TORCH:
        raise SpecError(
            f"hvd.init() of horovod.torch needs a gang of PyTorch, and this one has backend {backend.value!r}: pass "
            "backend='torch' (--backend torch)"
        )
    # Here, for every member imports this module: their sockets and psutil took each of them 18 ms.
    from sparktrain.training.collectives import barrier
    from sparktrain.training.collectives.gloo_rendezvous import StoreRendezvous
    from sparktrain.training.collectives.horovod_environment import horovod_environment

    ring: Any = gang.ring
    with StoreRendezvous(formation.rank, ring.own_store("horovod")) as rendezvous:
        os.environ.pop("HOROVOD_ELASTIC", None)  # with it Horovod expects the driver of its own elastic runs
        os.environ.update(
            horovod_environment(formation, rendezvous.address, timeout_s=_TIMEOUT_S, operation_s=_OPERATION_S)
        )
        try:
            start()
        except ValueError as error:
            raise FormError(
                f"{barrier.this_member(formation)}: Horovod could not be connected for PyTorch ({error}): see the logs "
                "of the other members, and have all of them call hvd.init()"
            ) from error
