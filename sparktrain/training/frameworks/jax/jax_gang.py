"""Connects the processes of a gang by `jax.distributed`, before the training function runs.

Rank 0 serves JAX's coordination service on the port that it has held since the members exchanged addresses: gRPC binds
a port that another socket holds by SO_REUSEPORT, so no other process can take it in between. The others connect once
it listens. From then on JAX has the devices of all members: a program with `jax.experimental.multihost_utils`,
`shard_map` or `keras.distribution` runs as it is, and what it calls to connect or to leave does nothing more.

The service and Gloo have no authentication, as JAX has it. They listen on the address of the member alone.
"""

import functools
import math
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax._src.distributed as jax_distributed
from jax._src import compiler, lib, xla_bridge
from msgspec.structs import replace

from sparktrain.base.clock import SystemClock
from sparktrain.base.formatting import first_line
from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.errors import FormError, SpecError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.frameworks.jax.quiet_relay import QuietRelay

_PREEMPTION = "jax_enable_preemption_service"
_GLOO = "make_gloo_tcp_collectives"
_CLIENT = "get_distributed_runtime_client"
_PORT = "jax/port"
"""The key by which rank 0 shares the port of its service."""
RING_THREAD = "sparktrain-ring"
"""The name of the threads that run the ring's own programs."""
_COMPILE = "compile_or_get_cached"
_PROGRAMS: list[str] = []
"""The threads that have compiled the programs of the function over devices of other members."""
_LEFT: list[Any] = []
"""Clients and services of rings that this process has left."""
_initialize = jax_distributed.initialize


def connect(joining: Joining) -> Callable[[], None]:
    """Connect this member; returns what leaves together with all others, and blocks until they do. Raises FormError.

    One that is prepared has devices of its own until it gets a place, by `enter`. It initialises no device: the
    function may still set flags of XLA.
    """
    formation = joining.formation
    config: Any = jax.config
    if _PREEMPTION.upper() not in os.environ:
        # It takes SIGTERM for itself, and a member that is stopped ends by that signal.
        config.update(_PREEMPTION, False)
    _note_programs()
    # A client of a ring that was left would wait for members that are gone.
    _bind(_CLIENT, shutdown_on_destruction=False)
    shutdown = jax_distributed.shutdown
    if not joining.changes.prepared:
        enter(joining)
    check_meshes(formation)
    _leave_calls_to_gang(formation)
    return shutdown


def enter(joining: Joining) -> None:
    """Connect this process, which is connected to no other, to those of `joining`. Raises FormError.

    In a later ring rank 0 serves on another port: a service that was left keeps its own.
    """
    formation = joining.formation
    _bind_gloo(formation.mine.address)
    is_first = not joining.changes.number
    port = formation.places[0].port
    if formation.rank:
        joining.release_port()
    elif is_first:
        _check_port(formation)
    else:
        held = barrier.HeldPort(formation.mine.address)
        port = held.number
    offers = {_PORT: str(port).encode()} if not formation.rank else {}
    shared = barrier.wait_for_all(joining, SystemClock(), offers)
    port = int(shared.get(_PORT, str(port)))
    bound = _address(formation, port)
    address = bound
    if formation.rank:
        # gRPC waits a second after an attempt that fails, and a plain socket does not.
        _await_service(joining, port)
        address = QuietRelay(formation.places[0].address, port, joining.timeout_s).address
    try:
        _initialize(
            address,
            formation.size,
            formation.rank,
            cluster_detection_method="deactivate",
            initialization_timeout=barrier.whole_seconds(joining.timeout_s),
            # The agents know which member is dead, and `hang_timeout` which one hangs: JAX would abort all others.
            heartbeat_timeout_seconds=barrier.whole_seconds(joining.operation_s),
            shutdown_timeout_seconds=barrier.whole_seconds(joining.timeout_s),
            coordinator_bind_address=bound,
        )
    except (RuntimeError, ValueError) as error:
        raise FormError(
            f"{barrier.this_member(formation)}: JAX cannot connect to its coordination service on "
            f"{formation.places[0].host} ({bound}): {first_line(error)}; members connect to each other on any port, "
            "so no firewall may be between them"
        ) from error
    joining.release_port()


def leave() -> None:
    """Leave the processes that this one is connected to, perhaps without them. Its own arrays keep their values.

    What was compiled for the devices of all members is compiled again. JAX has no public call for that.
    """
    state = jax_distributed.global_state
    # The end of a service would end the clients of members that have not left it yet.
    _LEFT.append((state.client, state.service))
    state.client = None
    state.service = None
    clear: Any = jax.clear_caches
    clear()
    xla_bridge._clear_backends()


def is_left(array: Any) -> bool:
    """Whether `array` is on devices of a ring that this process has left: those of the present one have the same
    numbers, and JAX may take one for the other."""
    return next(iter(array.devices())).client is not jax.local_devices()[0].client


def _address(formation: Formation, port: int) -> str:
    chief = formation.places[0]
    host = f"[{chief.address}]" if ":" in chief.address else chief.address
    return f"{host}:{port}"


def _check_port(formation: Formation) -> None:
    """Raise FormError where another process has the port of rank 0: JAX would end by SIGSEGV."""
    mine = formation.mine
    with socket.socket(socket.AF_INET6 if ":" in mine.address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((mine.address, mine.port))
        except OSError as error:
            raise FormError(
                f"{barrier.this_member(formation)}: JAX's coordination service cannot listen on port {mine.port} of "
                f"{mine.address}: {error}"
            ) from error


def _await_service(joining: Joining, port: int) -> None:
    """Block until rank 0 listens on `port`. Raises FormError."""
    chief = replace(joining.formation.places[0], port=port)
    if (error := barrier.await_listener(chief, joining.timeout_s)) is not None:
        raise FormError(
            f"{barrier.this_member(joining.formation)}: JAX's coordination service of rank 0 on {chief.host} "
            f"({chief.address}, port {chief.port}) cannot be reached within {joining.timeout_s:g} s: {error}; "
            "members connect to each other on any port, so no firewall may be between them"
        ) from error


def answer(**functions: Any) -> None:
    """Have functions of `jax` answer otherwise, until `answer_as_is`: in a process that waits for its place."""
    vars(jax).update(functions)


def answer_as_is() -> None:
    """End what `answer` has started."""
    vars(jax).update({name: getattr(xla_bridge, name) for name in ("process_index", "process_count", "device_count")})


def has_programs() -> bool:
    """Whether the function has compiled a program over devices of other members; True where that is unknown."""
    return bool(_PROGRAMS) or not hasattr(compiler, _COMPILE)


def _note_programs() -> None:
    """Note programs of the function in `_PROGRAMS` from now on. JAX has no public call for that."""
    compile_program: Any = getattr(compiler, _COMPILE, None)
    if compile_program is None:
        return

    @functools.wraps(compile_program)
    def noted(backend: Any, computation: Any, devices: Any, *arguments: Any, **options: Any) -> Any:
        thread = threading.current_thread().name
        if devices.size > 1 and thread != RING_THREAD:
            _PROGRAMS.append(thread)
        return compile_program(backend, computation, devices, *arguments, **options)

    setattr(compiler, _COMPILE, noted)


def _bind_gloo(address: str) -> None:
    """Have Gloo listen on the address by which the others know this member: by itself it resolves the host's name."""
    _bind(_GLOO, hostname=address)


def _bind(name: str, **arguments: Any) -> None:
    """Have JAX call a function of its library with these arguments, where it has that."""
    library: Any = lib
    function = getattr(library._jax, name, None)
    if function is not None:
        setattr(library._jax, name, functools.partial(function, **arguments))


def _leave_calls_to_gang(formation: Formation) -> None:
    """Have the user's calls of `jax.distributed` do nothing more."""

    def initialize(
        coordinator_address: Any = None, num_processes: Any = None, process_id: Any = None, *_: Any, **__: Any
    ) -> None:
        for name, passed, actual in (
            ("num_processes", num_processes, formation.size),
            ("process_id", process_id, formation.rank),
        ):
            if passed is not None and passed != actual:
                raise SpecError(
                    f"jax.distributed.initialize({name}={passed!r}) in a gang, where {name} is {actual}: sparktrain "
                    "has connected its members already; call it without arguments, or leave it out"
                )

    # In both modules: JAX's exit handler calls that of the second one, and would wait for members that still train.
    for module in (jax.distributed, jax_distributed):
        vars(module).update(initialize=initialize, shutdown=_stay)


def _stay() -> None:
    """Takes the place of `jax.distributed.shutdown`: the gang leaves as one when all functions have returned."""


def check_meshes(formation: Formation) -> None:
    """Check the meshes of `keras.distribution` in this process, also where Keras is imported later."""
    patch_when_imported("keras.src.distribution.distribution_lib", functools.partial(_check_in, formation=formation))


def _check_in(library: Any, formation: Formation) -> None:
    create = library.DeviceMesh.__init__
    arrange = library.Distribution.__init__

    @functools.wraps(create)
    def init(mesh: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        if devices is None and shape and math.prod(shape) != jax.device_count():
            raise SpecError(f"DeviceMesh(shape={tuple(shape)}) {_misfit(math.prod(shape), formation)}")
        create(mesh, shape, axis_names, devices)

    @functools.wraps(arrange)
    def distribute(distribution: Any, device_mesh: Any, *args: Any, **options: Any) -> None:
        count = len({str(device) for device in device_mesh.devices.flatten()})
        if count != jax.device_count():
            kind = type(distribution).__name__
            raise SpecError(f"the mesh of keras.distribution.{kind} {_misfit(count, formation)}")
        arrange(distribution, device_mesh, *args, **options)

    library.DeviceMesh.__init__ = init
    library.Distribution.__init__ = distribute


def _misfit(count: int, formation: Formation) -> str:
    total = jax.device_count()
    return (
        f"has {count} devices, and the gang has {total} ({formation.size} members with {total / formation.size:g} "
        "each): a mesh has the devices of all members, as keras.distribution.list_devices() returns them; change its "
        "shape, or the number of workers"
    )
