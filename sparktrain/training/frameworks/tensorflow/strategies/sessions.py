"""Sessions of TensorFlow 1 in a gang in which each member builds a graph of its own (between-graph replication).

`install_sessions` changes how sessions start: workers look for the chief's variables each second, not each 30; a
parameter server that does not come, or a chief that does not initialise the variables, is an error with a deadline; and
the chief initialises them from the gang's newest checkpoint. `MonitoredTrainingSession` also reports steps, so that a
hang is detected, and the chief saves checkpoints to the run directory. Imports TensorFlow.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.training.monitored_session import USE_DEFAULT
from tensorflow.python.training.session_manager import SessionManager

from sparktrain.base.clock import Clock
from sparktrain.base.ids import CHIEF
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError, RingError
from sparktrain.state.topology import Formation
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.strategies import tf_cluster
from sparktrain.training.frameworks.tensorflow.strategies.session_hooks import (
    Every,
    ReportSteps,
    SaveVariables,
    variables_of,
)
from sparktrain.training.notices import notice

v1 = tf.compat.v1

SERVERS_TIMEOUT_S = 60.0
"""How long a session waits for the parameter servers."""
CHIEF_TIMEOUT_S = 300.0
"""How long a worker waits for the chief's variables where the program does not choose."""
RECOVERY_WAIT_S = 1
"""How often a worker looks whether the chief has initialised the variables."""
SAVE_EVERY_S = 60.0
"""How often the chief saves where the program does not choose; a restart costs the steps since then."""

STOP_GRACE_S = 2
"""How long the end of a session waits for its threads where the program does not choose: TensorFlow waits 120 s for
those of a SyncReplicasOptimizer, which wait for gradients of members that have ended."""

_DEFAULT_RECOVERY_WAIT_S = 30
_DEFAULT_WAITS_S = (1800, 7200, float("inf"))
"""How long a worker waits: `max_wait_secs` of WorkerSessionCreator, of MonitoredTrainingSession and Supervisor, and of
SessionManager."""
_WHY = "it should have started tf.compat.v1.train.Server: see its log"


@dataclass(frozen=True)
class SessionMember:
    """What sessions need of the member that starts them."""

    formation: Formation
    saver: CheckpointSaver
    stepped: Callable[[int, bool], None]
    """Report finished steps, and whether more follow."""
    serves: Callable[[], None]
    """Report that this member serves until the others have ended."""
    log_dir: str
    own_folders: tuple[str, ...]
    """Folders that end with this member."""
    clock: Clock


def install_sessions(**member: Any) -> None:
    """Have sessions of this process train as a gang does, with the fields of a `SessionMember`. Call it once."""
    sessions = _Sessions(SessionMember(**member))
    replace(tf.distribute.Server, "__init__", sessions.started)
    replace(tf.distribute.Server, "join", sessions.joined)
    replace(SessionManager, "__init__", sessions.managed)
    replace(SessionManager, "prepare_session", sessions.prepared)
    replace(SessionManager, "wait_for_session", sessions.awaited)
    replace(v1.train, "MonitoredTrainingSession", sessions.monitored)
    replace(v1.train.Supervisor, "prepare_or_wait_for_session", sessions.supervised)


class _Sessions:
    """Makes the new functions."""

    def __init__(self, member: SessionMember) -> None:
        self._member = member
        self._started = False
        self._task = ""

    def started(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of Server: note which task of the program's cluster this member is."""

        @functools.wraps(plain)
        def init(server: Any, *args: Any, **kwargs: Any) -> None:
            plain(server, *args, **kwargs)
            self._task = f"/job:{server.server_def.job_name}/task:{server.server_def.task_index}"

        return init

    def joined(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of Server: report that the gang does not wait for this member. Its agent ends it after the others."""

        @functools.wraps(plain)
        def join(server: Any) -> None:
            self._member.serves()
            plain(server)

        return join

    def managed(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Of SessionManager: look for the chief's variables more often, unless the program chooses."""

        @functools.wraps(plain)
        def init(manager: Any, *args: Any, **kwargs: Any) -> None:
            plain(manager, *args, **kwargs)
            # By default a worker was ready 30 s after the chief, so that short asynchronous runs were in effect those
            # of one worker.
            if manager._recovery_wait_secs == _DEFAULT_RECOVERY_WAIT_S:
                manager._recovery_wait_secs = RECOVERY_WAIT_S

        return init

    def awaited(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Of SessionManager, in a worker: wait for the parameter servers first, then for the chief, with a deadline."""

        @functools.wraps(plain)
        def wait(manager: Any, *args: Any, **kwargs: Any) -> Any:
            # Sessions print nothing about a server that does not come, and hang without an end.
            self._await_servers()
            arguments = dict(inspect.signature(plain).bind(manager, *args, **kwargs).arguments)
            arguments["config"] = self._filtered(manager, arguments.get("config"))
            if arguments.get("max_wait_secs", float("inf")) in _DEFAULT_WAITS_S:
                arguments["max_wait_secs"] = CHIEF_TIMEOUT_S
            try:
                return plain(**arguments)
            except tf.errors.DeadlineExceededError as error:
                raise self._without_chief(arguments["max_wait_secs"]) from error

        return wait

    def prepared(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Of SessionManager, in the chief: the same, and initialise from the newest checkpoint where there is one."""

        @functools.wraps(plain)
        def prepare(manager: Any, master: str, *args: Any, **kwargs: Any) -> Any:
            self._await_servers()
            # Without an address it is a session of this process alone: its variables are on no server.
            if not master:
                return plain(manager, master, *args, **kwargs)
            arguments = dict(inspect.signature(plain).bind(manager, master, *args, **kwargs).arguments)
            arguments["config"] = self._filtered(manager, arguments.get("config"))
            if arguments.get("checkpoint_dir") or arguments.get("checkpoint_filename_with_path"):
                return plain(**arguments)
            start = functools.partial(self._start, manager, arguments)
            return plain(manager, master, config=arguments["config"], init_fn=start)

        return prepare

    def monitored(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """MonitoredTrainingSession that reports steps and, in the chief, saves to the run directory."""
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def session(*args: Any, **kwargs: Any) -> Any:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            arguments.setdefault("stop_grace_period_secs", STOP_GRACE_S)
            arguments["hooks"] = [*(arguments.get("hooks") or ()), *self._hooks(arguments)]
            return plain(**arguments)

        return session

    def supervised(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Of Supervisor: the chief saves to the run directory in a thread, unless the program saves to a directory."""

        @functools.wraps(plain)
        def prepare(supervisor: Any, *args: Any, **kwargs: Any) -> Any:
            sess = plain(supervisor, *args, **kwargs)
            step = supervisor.global_step
            if supervisor.is_chief and step is not None and not self._is_shared(supervisor._logdir):
                hook = SaveVariables(self._member.saver, step, Every(None, SAVE_EVERY_S), self._member.clock)
                supervisor.loop(SAVE_EVERY_S, hook.save, args=(sess,))
            return sess

        return prepare

    # ---- inside

    def _start(self, manager: Any, arguments: Mapping[str, Any], sess: Any) -> None:
        """Initialise the chief's variables. A session that replaces a broken one finds them on the servers."""
        again = self._started
        self._started = True
        if again and manager._model_ready(sess)[0]:
            return
        restored = self._member.saver.restore()
        if restored is not None:
            if again:
                raise RingError("the servers have lost the variables: the gang restarts from its newest checkpoint")
            _initialize(sess, restored["variables"])
            return
        if (operation := arguments.get("init_op")) is not None:
            sess.run(operation, feed_dict=arguments.get("init_feed_dict"))
        if (function := arguments.get("init_fn")) is not None:
            function(sess)

    def _hooks(self, arguments: dict[str, Any]) -> list[Any]:
        step = v1.train.get_global_step()
        if step is None:
            return []
        hooks: list[Any] = [ReportSteps(self._member.stepped, step, self._member.clock)]
        folder = arguments.get("checkpoint_dir")
        if arguments.get("is_chief", True) and not self._is_shared(folder):
            if folder:
                notice(
                    f"MonitoredTrainingSession(checkpoint_dir={folder!r}): the variables are saved to the checkpoints "
                    "of the run instead, because other hosts and a restart cannot read that folder"
                )
                arguments["summary_dir"] = arguments.get("summary_dir") or self._member.log_dir
            arguments["checkpoint_dir"] = None
            if (every := _every(arguments)) is not None:
                hooks.append(SaveVariables(self._member.saver, step, every, self._member.clock))
        return hooks

    def _filtered(self, manager: Any, config: Any) -> Any:
        """`config` of a session that connects to the parameter servers, and not to other workers.

        Without it a session starts only when all members have started, and none has ended. As it is where the program
        filters devices, or has operations on another worker.
        """
        if not self._task or (config is not None and config.device_filters):
            return config
        places = {operation.device for operation in manager._graph.get_operations()}
        if any(not self._may_use(tf.DeviceSpec.from_string(place)) for place in places):
            return config
        filtered = v1.ConfigProto()
        if config is not None:
            filtered.CopyFrom(config)
        filtered.device_filters.extend([f"/job:{Role.PS}", self._task])
        return filtered

    def _may_use(self, place: Any) -> bool:
        task_device = tf.DeviceSpec.from_string(self._task)
        return place.job in (None, Role.PS) or (place.job == task_device.job and place.task in (None, task_device.task))

    def _is_shared(self, folder: str | None) -> bool:
        """Whether TensorFlow can save to `folder`, and a restart finds it: an absolute path outside of the member's."""
        path = Path(folder or "")
        if (folder or "").startswith("gs://"):
            return True
        return path.is_absolute() and not any(path.is_relative_to(root) for root in self._member.own_folders)

    def _without_chief(self, waited_s: float) -> FormError:
        chief = self._member.formation.places[CHIEF]
        return FormError(
            f"rank {CHIEF} ({chief.role}) at {chief.host}:{chief.port} did not initialise the variables within "
            f"{waited_s:g} s: see its log; it must start a session with is_chief=True. Where that takes longer, pass "
            "max_wait_secs to MonitoredTrainingSession"
        )

    def _await_servers(self) -> None:
        if self._member.formation.role is not Role.PS:
            tf_cluster.await_servers(self._member.formation, SERVERS_TIMEOUT_S, _WHY, self._member.clock)


def _every(arguments: Mapping[str, Any]) -> Every | None:
    """When the program wants checkpoints; None for never."""
    intervals = [arguments.get(name, USE_DEFAULT) for name in ("save_checkpoint_steps", "save_checkpoint_secs")]
    if intervals == [USE_DEFAULT, USE_DEFAULT]:
        return Every(None, SAVE_EVERY_S)
    steps, seconds = (None if interval == USE_DEFAULT or not interval else interval for interval in intervals)
    return None if steps is None and seconds is None else Every(steps, seconds)


def _initialize(sess: Any, values: Mapping[str, Any]) -> None:
    """Initialise each variable once: with its value of the checkpoint, or as the program does where it is new."""
    waiting = variables_of(sess.graph)
    while waiting:
        fed: dict[str, Any] = {}
        now: list[Any] = []
        later: list[Any] = []
        for variable in waiting:
            # A value that is fed for an initial value goes to all variables that start with it: these take turns.
            start = variable.initializer.inputs[1].name
            shares = start in fed  # its initial value is also that of another variable
            (later if shares else now).append(variable)
            if not shares and variable.name in values:
                fed[start] = values[variable.name]
        sess.run([ready_variable.initializer for ready_variable in now], fed)
        waiting = later
