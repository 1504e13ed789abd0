"""Implements `ctx.strategy`: TensorFlow's strategies for a member of a gang, or an error that explains why not."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktrain.base.clock import Clock
from sparktrain.config.backends import BACKENDS, Backend
from sparktrain.config.gang_spec import Role
from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError, StrategyError
from sparktrain.state.topology import Formation
from sparktrain.training.frameworks.tensorflow.strategies import tf_cluster
from sparktrain.training.gang_join import JoinedGang
from sparktrain.training.source_homes import Homes
from sparktrain.training.user_lines import named_use

if TYPE_CHECKING:
    import tensorflow as tf

DEFAULT = "default"
MULTI_WORKER = "multi_worker_mirrored"
PARAMETER_SERVER = "parameter_server"
MIRRORED = "mirrored"
CENTRAL_STORAGE = "central_storage"
ONE_DEVICE = "one_device"

_OPTIONS: dict[str, tuple[str, ...]] = {
    MULTI_WORKER: ("communication",),
    PARAMETER_SERVER: ("variable_partitioner",),
    MIRRORED: ("devices",),
    CENTRAL_STORAGE: ("devices",),
    ONE_DEVICE: ("device",),
    DEFAULT: (),
}
_CONNECTED = (MULTI_WORKER, PARAMETER_SERVER)
_ELSEWHERE = Homes()
_MUST_CALL = "every member that trains must call ctx.strategy(), and soon after the others: see its log"
_MUST_SERVE = "it should serve the chief: see its log"
# TensorFlow raises RuntimeError and ValueError for this, as for much else: only the texts differ.
_TOO_LATE = ("program startup", "already configured", "after being initialized")


def connect(gang: JoinedGang, backend: Backend) -> None:
    """Have strategies that the function makes by itself connect `gang`: see `Framework.joins`."""
    by_servers = backend in (Backend.NONE, Backend.PARAMETER_SERVER)
    if gang.formation.size > 1 and not by_servers and "tensorflow" in sys.modules:  # the backend has imported it
        from sparktrain.training.frameworks.tensorflow.strategies import own_strategies

        own_strategies.install(gang, backend)


class Strategies:
    """The strategies of one member. Only the main thread of the process that trains may use it."""

    def __init__(
        self,
        formation: Formation,
        backend: Backend,
        release_port: Callable[[], None],
        *,
        timeout_s: float,
        clock: Clock,
        connected: Callable[[], bool] = lambda: False,
        homes: Homes = _ELSEWHERE,
    ) -> None:
        """`connected`: whether a ring connects the members already; `homes` names the user's files in errors."""
        self._formation = formation
        self._backend = backend
        self._release_port = release_port
        self._timeout_s = timeout_s
        self._clock = clock
        self._ring_connects = connected
        self._homes = homes
        self._connected: tuple[str, dict[str, Any], Any] | None = None
        self._connecting_call = ""
        """The call that connected the members, with its line."""

    def strategy(self, kind: str | None = None, **options: Any) -> "tf.distribute.Strategy":
        """The strategy to build a model under. Call it before TensorFlow has run any op.

        | kind | what it connects | options |
        |---|---|---|
        | `multi_worker_mirrored` | the devices of all members, in step | `communication`: "ring", or "nccl" for GPUs |
        | `parameter_server` | the chief with all other members, which serve | `variable_partitioner` |
        | `mirrored` | the devices of this member, in step | `devices`: how many (also logical CPUs), or names |
        | `central_storage` | the same, with the variables in one place | `devices` |
        | `one_device` | nothing | `device`: a name |

        None: `parameter_server` in a gang with parameter servers, `multi_worker_mirrored` in one without, and
        TensorFlow's default for a member that trains alone or evaluates. An equal second call returns the same object.

        The first two block until the other members call, at most 30 s. Raises SpecError for an unknown kind or option,
        StrategyError if this gang has no such strategy or TensorFlow has run an op, FormError for a missing member.
        """
        choice = self._default() if kind is None else _checked_kind(kind)
        _check_options(choice, options, named=kind is not None)
        if choice == DEFAULT:
            import tensorflow as tf

            return tf.distribute.get_strategy()
        self._check_gang(choice)
        if self._connected is not None:
            return self._again(choice, options)
        try:
            strategy = self._connect(choice, options) if choice in _CONNECTED else self._local(choice, options)
        except (RuntimeError, ValueError) as error:
            if isinstance(error, SpecError) or not any(words in str(error) for words in _TOO_LATE):
                raise
            raise self._too_late(choice) from error
        if choice in _CONNECTED:
            self._connected = choice, options, strategy
            self._connecting_call = self._call(choice)
        return strategy

    def _default(self) -> str:
        if self._formation.role is Role.EVALUATOR:
            return DEFAULT
        if self._formation.has_ps:
            return PARAMETER_SERVER
        return MULTI_WORKER if self._formation.trainers > 1 else DEFAULT

    def _check_gang(self, kind: str) -> None:
        gang = self._formation
        call = self._call(kind)
        if gang.size > 1 and self._backend is not Backend.TENSORFLOW:
            instead = BACKENDS[self._backend].strategy_advice
            raise StrategyError(
                f"{call} in a gang with backend {self._backend.value!r}: strategies connect gangs with backend "
                f"'tensorflow'; pass backend='tensorflow' (--backend tensorflow), or {instead}"
            )
        if gang.role is Role.EVALUATOR and kind in _CONNECTED:
            raise StrategyError(
                f"{call} in the evaluator: it watches a cluster and is not a part of it; call ctx.strategy(), or test "
                "ctx.role == 'evaluator' before"
            )
        if kind == PARAMETER_SERVER:
            self._check_servers(call)
        elif gang.has_ps and gang.role is not Role.EVALUATOR:
            raise StrategyError(
                f"{call} in a gang with parameter servers: all members but the chief are servers, and take part in "
                "'parameter_server' alone; use that, or ps=0"
            )
        elif kind != MULTI_WORKER and gang.role is not Role.EVALUATOR and (k := gang.trainers) > 1:
            raise StrategyError(
                f"{call} connects the devices of one member, and {k} members train: they would train {k} separate "
                "models; use 'multi_worker_mirrored', which takes all devices of all members, or workers=1"
            )

    def _check_servers(self, call: str) -> None:
        if not self._formation.has_ps:
            raise StrategyError(
                f"{call} in a gang without parameter servers: pass ps=1, or more, and workers=2, or more"
            )
        if self._formation.trainers < 2:
            raise StrategyError(
                f"{call} in a gang with the chief as its only worker, which computes nothing: pass workers=2"
            )

    def _again(self, kind: str, options: dict[str, Any]) -> Any:
        assert self._connected is not None
        first, first_options, strategy = self._connected
        if (kind, options) != (first, first_options):
            raise StrategyError(
                f"{self._call(kind)} after {self._connecting_call}: a process connects to its gang once, in one "
                "way; keep what the first call gave"
            )
        return strategy

    def _local(self, kind: str, options: dict[str, Any]) -> Any:
        from sparktrain.training.frameworks.tensorflow.strategies import builders

        makers: dict[str, Callable[..., Any]] = {
            MIRRORED: builders.mirrored,
            CENTRAL_STORAGE: builders.central_storage,
            ONE_DEVICE: builders.one_device,
        }
        return makers[kind](**options)

    def _connect(self, kind: str, options: dict[str, Any]) -> Any:
        from sparktrain.training.frameworks.tensorflow.strategies import builders, own_strategies

        alone = self._formation.size == 1
        on_ring = kind == MULTI_WORKER and self._ring_connects()
        if kind == MULTI_WORKER and own_strategies.initialized() and not on_ring:
            raise self._too_late(kind)  # before it waits for the others, which may fail for the same reason
        environment = self._formation.tf_config()
        make: Callable[..., Any]
        make = builders.multi_worker if kind == MULTI_WORKER else builders.parameter_server
        if alone or on_ring:
            return make(environment, **options)
        why = _MUST_CALL if kind == MULTI_WORKER else _MUST_SERVE
        with tf_cluster.port_kept(self._formation.mine, self._release_port):
            tf_cluster.await_members(self._formation, self._timeout_s, why, self._clock)
            return make(environment, **options)

    def _call(self, kind: str) -> str:
        """The call with the user's line."""
        return named_use(f"ctx.strategy({kind!r})", self._homes)

    def _too_late(self, kind: str) -> StrategyError:
        from sparktrain.training.frameworks.tensorflow.strategies import own_strategies

        return StrategyError(
            f"{self._call(kind)} came after TensorFlow had started: {own_strategies.advice()}it has run an op, made "
            "another strategy or joined a ring; call ctx.strategy() before you build a model, a dataset or a tensor, "
            "and before any other method of ctx that uses the gang"
        )


def _checked_kind(kind: object) -> str:
    names = [name for name in _OPTIONS if name != DEFAULT]
    if isinstance(kind, str) and kind in names:
        return kind
    argument = shown(kind) if isinstance(kind, str) else described(kind)
    raise SpecError(
        f"ctx.strategy({argument}): a kind is one of {', '.join(map(repr, names))}"
        f"{did_you_mean(kind, names) if isinstance(kind, str) else ''}"
    )


def _check_options(kind: str, options: dict[str, Any], *, named: bool) -> None:
    for name in options:
        if name in _OPTIONS[kind]:
            continue
        takers = [taker for taker, names in _OPTIONS.items() if name in names]
        if not named and takers:
            raise SpecError(f"ctx.strategy({name}=...): name the kind too: {' and '.join(takers)} take {name}")
        allowed = _OPTIONS[kind]
        takes = f"it takes {', '.join(allowed)}" if allowed else "there it takes no option"
        raise SpecError(f"ctx.strategy({kind!r}): unknown option {name!r}, {takes}{did_you_mean(name, allowed)}")
