"""Members of test gangs that are lost, hang or fail, and the errors of the others."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparktrain.base.clock import SystemClock, pause
from sparktrain.config.backends import Backend
from sparktrain.errors import FormError, RingError
from sparktrain.training.collectives import barrier
from sparktrain.training.collectives.backend import Joining, load
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.ring_errors import is_ring_error
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from tests.training.fits import data, mlp


def lost_in_fit(ring: Ring, victim: int, note: str) -> Any:
    """The victim is killed in the midst of training; it writes the time to `note`."""

    def step(batch: int, logs: Any = None) -> None:
        if ring.rank == victim and batch == 10:
            Path(note).write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)

    return _error_of(lambda: _fit(ring, [keras.callbacks.LambdaCallback(on_train_batch_begin=step)]), Path(note))


def lost_eagerly(ring: Ring, victim: int, note: str) -> Any:
    """As `lost_in_fit`, between eager operations."""

    def operate() -> None:
        for number in range(100):
            if ring.rank == victim and number == 10:
                Path(note).write_text(str(time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)
            ring.allreduce([ring.tensor(np.ones(1000, "float32"))], average=True, name="one")

    return _error_of(operate, Path(note))


def stuck(joining: Joining, backend: str) -> Any:
    """The last rank does not call the operation that the others wait in, until one of them has given up."""
    ring = load(Backend(backend))(joining)
    ring.allreduce([ring.tensor(np.ones(3, "float32"))], average=True, name="first")
    if ring.rank == ring.size - 1:
        while joining.exchange.shared(60) != ("gave up", b""):
            pass
        return None
    started = time.monotonic()
    found = _error_of(lambda: ring.allreduce([ring.tensor(np.ones(3, "float32"))], average=True, name="one"), None)
    joining.exchange.share("gave up", b"")
    return {**found, "after": time.monotonic() - started}


def slow(joining: Joining, backend: str, seconds: float) -> float:
    """The last rank takes much longer for its data than the ring waits for a member that does not answer."""
    ring = load(Backend(backend))(replace(joining, slow_s=60.0))
    if ring.rank == ring.size - 1:
        pause(seconds)
    (total,) = ring.allreduce([ring.tensor(np.array(1.0 + ring.rank))], average=False, name="one")
    ring.close()
    return float(total)


def threads(joining: Joining, backend: str) -> list[int]:
    """The threads of the process after 50 operations of the ring, and after 100 more."""
    ring = load(Backend(backend))(replace(joining, slow_s=60.0))
    counts = []
    for number in range(150):
        ring.allreduce([ring.tensor(np.ones(8, "float32"))], average=False, name="many")
        if number in (49, 149):
            counts.append(len(os.listdir("/proc/self/task")))
    ring.close()
    return counts


def mistaken(ring: Ring) -> Any:
    """The function of rank 0 has a mistake, in the midst of training."""
    keras.utils.set_random_seed(7)
    model = mlp()
    optimizer = distribute(keras.optimizers.SGD(0.1), ring)
    x, y = data(ring)

    @tf.function
    def step(number: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        if ring.rank == 0:
            tf.debugging.assert_less(number, 10, "a mistake of the user")
        gradients = tape.gradient(loss, [each.value for each in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)

    def loop() -> None:
        for number in range(100):
            step(tf.constant(number))

    found = _error_of(loop, None)
    ring.close = lambda: None  # type: ignore[method-assign] # a member ends without leaving after an exception
    return found


def out_of_step(ring: Ring) -> Any:
    """The members pass other shapes: each gets an error, at the latest after the ring's timeout."""
    mine = ring.tensor(np.ones(3 + ring.rank, "float32"))
    return _error_of(lambda: ring.allreduce([mine], average=True, name="one"), None)


def closed_after_an_error(ring: Ring) -> Any:
    """The operations that a ring calls in `close` after an error."""
    out_of_step(ring)
    called: list[str] = []
    ring.allreduce = lambda tensors, *, average, name: called.append(name)  # type: ignore[assignment,method-assign]
    ring.close()
    return called


def joined(joining: Joining, backend: str, thief: int) -> Any:
    """Another process takes the port of rank `thief` as soon as it is released."""
    port = joining.formation.mine.port
    stolen = Joining(joining.formation, joining.exchange, joining.release_port, joining.timeout_s)
    if joining.formation.rank == thief:
        joining.release_port()
        taken = socket.create_server(("0.0.0.0", port))
        stolen = Joining(joining.formation, joining.exchange, taken.fileno, joining.timeout_s)
    try:
        load(Backend(backend))(stolen)
    except FormError as error:
        return {"error": str(error), "port": port, "ring error": is_ring_error(error)}
    return "formed"


def vanishes(joining: Joining, backend: str, missing: int) -> Any:
    """Rank `missing` starts to join, and then ends."""
    if joining.formation.rank == missing:
        barrier.wait_for_all(joining, SystemClock())
        os._exit(3)
    try:
        load(Backend(backend))(joining)
    except FormError as error:
        return str(error)
    return "formed"


def never_comes(joining: Joining, backend: str, missing: int) -> Any:
    """Rank `missing` does not join at all."""
    if joining.formation.rank == missing:
        return None
    try:
        load(Backend(backend))(joining)
    except FormError as error:
        return str(error)
    return "formed"


def after_an_operation(joining: Joining) -> str:
    """TensorFlow has been used before the ring is joined."""
    tf.constant(1.0) + 1.0
    try:
        load(Backend.TENSORFLOW)(joining)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "formed"


def without_horovod() -> str:
    """The error where Horovod is not installed."""
    for name in [each for each in sys.modules if each.split(".")[0] == "horovod" or each.endswith(".horovod_ring")]:
        del sys.modules[name]
    sys.modules["horovod"] = None  # type: ignore[assignment]
    try:
        load(Backend.HOROVOD)
    except ImportError as error:
        return str(error)
    return "imported"


def _fit(ring: Ring, callbacks: list[Any]) -> None:
    keras.utils.set_random_seed(7)
    model = mlp()
    model.compile(distribute(keras.optimizers.SGD(0.1), ring), "mse", jit_compile=False)
    x, y = data(ring)
    model.fit(x, y, batch_size=1, epochs=100, steps_per_epoch=None, verbose=0, callbacks=callbacks)


def _error_of(call: Callable[[], Any], note: Path | None) -> dict[str, Any]:
    try:
        call()
    except Exception as error:
        after = time.monotonic() - float(note.read_text()) if note is not None and note.exists() else None
        text = f"{type(error).__name__}: {error}"
        return {
            "ring": is_ring_error(error),
            "typed": isinstance(error, RingError),
            "after": after,
            "text": text[:1500],
        }
    return {"ring": False, "text": "no error"}
