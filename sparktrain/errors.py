"""All errors that sparktrain raises, sorted by who must act.

    SparktrainError
    |-- UserError                  change the call, the function, the file or the Spark configuration
    |   |-- SpecError              a value that was passed or read from a file is wrong
    |   |-- DataError              the data of a call cannot be trained on as it is
    |   |-- FunctionError          the training function cannot be used
    |   |-- SessionError           there is no Spark session, or it cannot do what is asked
    |   |-- ResourceError          more slots, memory or GPUs are wanted than the session has
    |   |-- EnvironmentMismatchError  an executor runs other versions than the driver
    |   |-- StrategyError          a strategy of TensorFlow was used for what it cannot do, or would do wrongly
    |   |-- RunDirectoryError      the run directory cannot be made or written
    |   |   `-- JournalCorruptError  records in the middle of the journal are lost: `sparktrain fsck` shows which
    |   |-- ResumeError            the run in the directory is not the one that is asked for
    |   |-- NestedCallError        a call within a trial, or while the function's module is imported
    |   |-- GangNeededError        a function that is called in this process alone needs the rest of its gang
    |   |-- SamplerError           the sampler of a sweep raised: the sweep is stopped, and can be resumed
    |   |-- PoolError              a pool is used in a way that it does not allow
    |   `-- OutOfStepError         members of a gang run different programs, or hold different weights
    |-- InfraError                 the cluster failed; the same call may succeed later
    |   |-- DriverUnreachableError executors cannot connect to the driver
    |   |-- JoinTimeoutError       too few agents joined before the deadline
    |   |-- AgentsLostError        the agents' Spark job ended and could not be restarted
    |   |-- RingError              an operation of a ring failed: a member of the gang is gone or stuck
    |   |   `-- FormError          the ring could not be formed
    |   |-- CheckpointError        a checkpoint is corrupt, or cannot be written
    |   |-- StoreError             a store failed, and may work later
    |   |   |-- StoreTimeoutError  a call of a store did not return in time
    |   |   `-- StoreRefusedError  a store refused for a reason that persists until a person acts: permission, quota
    |   |-- StreamError            rows of a stream do not arrive: a feeder, a member or the feeding job failed
    |   `-- DeposedError           another driver has taken over the run
    |-- NoBestTrialError           a result has no best trial: none succeeded, or there is no metric to compare them by
    |-- MissingFileError           a trial has no such model or log
    |-- RunFailedError             the training function of a run failed; a trial of a sweep that fails is no error
    |   |-- RunStoppedError        the run was stopped before its end
    |   `-- RunLostError           members were lost more often than the run restarts the gang; an InfraError too
    `-- BugError                   sparktrain broke a rule of its own: please report
        |-- IllegalMoveError       a state machine received an event that is illegal in its state
        `-- ProtocolError          a peer sent invalid bytes, or a message for another receiver

A message names the subject, the value in question, the rule, and the next step. A trial of a sweep that fails is no
error: it is a result (`TrialResult.error`).
"""


class SparktrainError(Exception):
    """Root of all errors of this package."""


class UserError(SparktrainError):
    """An error that the caller can correct.

    What a call alone shows is found before anything starts. What only executors, the data, the sampler or the gang show
    is found later: the run ends then, and keeps its results.
    """


class SpecError(UserError, ValueError):
    """A value that was passed or read from a file is wrong."""


class DataError(UserError, ValueError):
    """The data that was passed as `data=` cannot be trained on as it is: a column, a value, a file or its place."""


class FunctionError(UserError, TypeError):
    """The training function cannot be called with the parameters, or cannot be sent to executors."""


class SessionError(UserError, RuntimeError):
    """There is no Spark session, or the session cannot do what the call asks for."""


class ResourceError(UserError, ValueError):
    """More slots, memory or GPUs are wanted than the session has."""


class EnvironmentMismatchError(UserError, RuntimeError):
    """An executor runs other versions of Python or of a framework than the driver, or has another task's GPU."""


class StrategyError(UserError, RuntimeError):
    """A strategy of TensorFlow cannot be created here, or was used in a way that fails or gives wrong numbers."""


class RunDirectoryError(UserError, OSError):
    """The run directory cannot be made or written, or belongs to another run."""


class JournalCorruptError(RunDirectoryError):
    """Records in the middle of the journal are lost or garbled: a resume could repeat a finished trial."""


class ResumeError(UserError, ValueError):
    """The run in the directory cannot be resumed as asked: its code, space or options differ."""


class SamplerError(UserError, RuntimeError):
    """The sampler of a sweep raised an error, which ended the sweep: the message has its traceback.

    The results so far stay; the same call resumes the sweep once the sampler is corrected.
    """


class PoolError(UserError, RuntimeError):
    """A pool was used when closed, or for two calls of one name at once, or other pools have the slots."""


class NestedCallError(UserError, RuntimeError):
    """A call was made where each of its trials would repeat it."""


class GangNeededError(UserError, RuntimeError):
    """A training function that is called in this process alone asks for the other members of its gang."""


class OutOfStepError(UserError, RuntimeError):
    """Members of a gang run different programs, or hold different weights after a step."""


class InfraError(SparktrainError):
    """The cluster failed; the same call may succeed later."""


class DriverUnreachableError(InfraError, ConnectionError):
    """Executors cannot connect to the coordinator in the driver."""


class JoinTimeoutError(InfraError, TimeoutError):
    """Too few agents joined before the deadline."""


class AgentsLostError(InfraError, RuntimeError):
    """The Spark job that carries the agents ended and could not be restarted."""


class RingError(InfraError):
    """An operation of a ring failed, because a member of the gang is gone, stuck, or out of step."""


class FormError(RingError):
    """The ring could not be formed: a port was taken meanwhile, or a member did not arrive."""


class CheckpointError(InfraError, OSError):
    """A checkpoint is corrupt, or cannot be written."""


class StoreError(InfraError, OSError):
    """A store failed: the network, a server, a disk. The same call may succeed later."""


class StoreTimeoutError(StoreError, TimeoutError):
    """A call of a store did not return before its deadline; whether it took effect is unknown."""


class StoreRefusedError(StoreError, PermissionError):
    """A store refused for a reason that persists until a person acts: a permission, a quota, a full disk."""


class StreamError(InfraError, RuntimeError):
    """Rows of a stream do not arrive: a feeder or a member is gone, or the job that feeds it failed."""


class DeposedError(InfraError, RuntimeError):
    """Another driver has taken over the run: this one must no longer write or start anything."""


class NoBestTrialError(SparktrainError, LookupError):
    """A result has no best trial: none has succeeded, or there is no metric to compare trials by."""


class MissingFileError(SparktrainError, FileNotFoundError):
    """A trial has no such model or log in its run directory."""


class RunFailedError(SparktrainError, RuntimeError):
    """The training function of `run` failed by its own fault: the same call would fail again."""

    rank: int | None = None
    """Rank of the member that failed first; None when none had started."""
    host: str | None = None
    """Host of that member."""
    traceback: str = ""
    """Traceback of its exception, without the outermost frames of sparktrain; empty for other causes."""
    log_tail: tuple[str, ...] = ()
    """The last lines of its output."""
    log: str | None = None
    """Location of its log."""
    restarts: tuple[str, ...] = ()
    """Why the gang was restarted, one line per restart, oldest first."""
    directory: str | None = None
    """The run directory."""


class RunStoppedError(RunFailedError):
    """A run was stopped before its training function had returned."""


class RunLostError(RunFailedError, InfraError):
    """Members of a run's gang were lost more often than the run restarts it; the same call may succeed later."""


class BugError(SparktrainError):
    """sparktrain broke one of its own rules; please report the message."""


class IllegalMoveError(BugError, RuntimeError):
    """A state machine received an event that is illegal in its state."""


class ProtocolError(BugError, ValueError):
    """A peer sent invalid bytes, or a message that its receiver does not accept."""
