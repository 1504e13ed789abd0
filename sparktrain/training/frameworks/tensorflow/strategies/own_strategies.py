"""Connects the strategies and servers that a program makes by itself of TF_CONFIG, without `ctx.strategy()`.

`install` changes three classes of TensorFlow in this process, so that programs as tutorials have them run in a gang:
MultiWorkerMirroredStrategy, ParameterServerStrategy and Server. Imports TensorFlow.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import (
    CollectiveAllReduceExtended,
    CollectiveAllReduceStrategy,
)
from tensorflow.python.distribute.parameter_server_strategy_v2 import ParameterServerStrategyV2
from tensorflow.python.eager import context

from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import Backend
from sparktrain.errors import StrategyError
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.strategies import tf_cluster
from sparktrain.training.gang_join import RING_TIMEOUT_S, JoinedGang
from sparktrain.training.source_homes import Homes
from sparktrain.training.user_lines import named_use, user_line

_MIRRORED = "tf.distribute.MultiWorkerMirroredStrategy()"
_SERVED = "tf.distribute.ParameterServerStrategy()"
_MUST_MAKE = "every member that trains must make the strategy, and soon after the others: see its log"
_MUST_SERVE = "it should serve the chief: see its log"


def install(gang: JoinedGang, backend: Backend) -> None:
    """Have strategies that this process makes connect `gang`, or refuse to. Call it once."""
    strategies = _OwnStrategies(gang, backend)
    replace(CollectiveAllReduceStrategy, "__init__", strategies.mirrored)
    replace(ParameterServerStrategyV2, "__init__", strategies.served)
    replace(tf.distribute.Server, "__init__", strategies.server)
    watch(gang.homes)


class _OwnStrategies:
    """Makes the new `__init__` of each class."""

    def __init__(self, gang: JoinedGang, backend: Backend) -> None:
        self._gang = gang
        self._backend = backend

    def mirrored(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of MultiWorkerMirroredStrategy: use the server of the ring where there is one, else connect the members."""

        @functools.wraps(plain)
        def init(strategy: Any, *args: Any, **kwargs: Any) -> None:
            if tf_cluster.port_is_kept():  # ctx.strategy() makes it, and does the rest
                plain(strategy, *args, **kwargs)
                return
            line = self._check_backend(_MIRRORED)
            self._gang.trained_by(line)
            if self._gang.connected:
                _attach()
                plain(strategy, *args, **kwargs)
            else:
                self._connect(line, _MUST_MAKE, lambda: plain(strategy, *args, **kwargs))
            from sparktrain.training.frameworks.tensorflow.strategies import workarounds

            workarounds.install()
            workarounds.keep_whole(strategy)

        return init

    def served(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of ParameterServerStrategy: wait for the servers first, with a deadline."""

        @functools.wraps(plain)
        def init(strategy: Any, *args: Any, **kwargs: Any) -> None:
            if tf_cluster.port_is_kept():  # as above
                plain(strategy, *args, **kwargs)
                return
            line = self._check_backend(_SERVED)
            if not self._gang.formation.has_ps:
                raise StrategyError(f"{line} in a gang without parameter servers: pass ps=1, or more, and workers=2")
            self._connect(line, _MUST_SERVE, lambda: plain(strategy, *args, **kwargs))
            from sparktrain.training.frameworks.tensorflow.strategies import workarounds

            workarounds.install()

        return init

    def server(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of Server: bind the port that this member holds."""

        @functools.wraps(plain)
        def init(server: Any, *args: Any, **kwargs: Any) -> None:
            if tf_cluster.port_is_kept():  # this package starts it
                plain(server, *args, **kwargs)
                return
            with tf_cluster.port_kept(self._gang.formation.mine, self._gang.release_port):
                plain(server, *args, **kwargs)

        return init

    def _check_backend(self, use: str) -> str:
        """The strategy with the user's line. Raises StrategyError where TF_CONFIG describes no gang."""
        line = named_use(use, self._gang.homes)
        if self._backend is not Backend.TENSORFLOW:
            raise StrategyError(
                f"{line} in a gang with backend {self._backend.value!r}: strategies connect gangs with backend "
                "'tensorflow'; pass backend='tensorflow' (--backend tensorflow), or train with "
                "ctx.distribute(optimizer) and without a strategy"
            )
        return line

    def _connect(self, line: str, why: str, make: Callable[[], None]) -> None:
        gang = self._gang
        if initialized():
            raise StrategyError(
                f"{line} came after TensorFlow had started: {advice()}make the strategy before you build a "
                "model, a dataset or a tensor"
            )
        with tf_cluster.port_kept(gang.formation.mine, gang.release_port):
            tf_cluster.await_members(gang.formation, RING_TIMEOUT_S, why, SystemClock())
            make()


def _attach() -> None:
    """Have strategies of this process use the server that connects the ring.

    They find its collectives configured as they would. The agent's lease and `hang_timeout` detect the loss of a
    member, so TensorFlow's own checks stay off: its coordination service cannot start this late.
    """
    # The ring has configured TensorFlow's server as a strategy does, and a process can have no second one.
    CollectiveAllReduceExtended._std_server_started = True
    CollectiveAllReduceExtended._enable_check_health = False
    context.context().configure_coordination_service = lambda *_, **__: None


class _Noted:
    """What is known of this process."""

    line = ""


def initialized() -> bool:
    """Whether TensorFlow has initialised its devices in this process, by an op or otherwise."""
    return context.context()._context_handle is not None


def watch(homes: Homes) -> None:
    """Note the line that starts TensorFlow, if it has not started. Call it once, before the user's code runs."""
    eager = context.context()
    start = eager.ensure_initialized

    def noting() -> None:
        if not initialized():
            _Noted.line = user_line(homes)
        vars(eager).pop("ensure_initialized", None)  # the class's own is back
        start()

    if not initialized():
        eager.ensure_initialized = noting


def advice() -> str:
    """The line that has started TensorFlow, as the start of a sentence; empty if it is unknown."""
    return f"{_Noted.line} started it: move that line below; " if _Noted.line else ""
