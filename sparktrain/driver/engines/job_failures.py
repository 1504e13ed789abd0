"""Whether a job of agents that has ended has a successor, and the error that ends the run where it has none."""

from sparktrain.cluster.driver_address import HOST_KEY, PORT_KEY
from sparktrain.cluster.import_failures import advice
from sparktrain.driver.engines.engine import Engine, JobEnd
from sparktrain.errors import AgentsLostError, DriverUnreachableError, EnvironmentMismatchError, SparktrainError

RELAUNCHES = 5
"""Times the agents' job is resubmitted in a row without a member that trains meanwhile. Where one does, its trial pays
for each end of the job, and has bounds of its own: see `state.restart`."""


def final_error(end: JobEnd, engine: Engine, ends: int, refused: str | None) -> SparktrainError | None:
    """The error that ends the run; None where the job is resubmitted.

    `ends`: how many jobs of these slots have ended since a member last entered the training function there, with this
    one. `refused`: why agents were refused for their versions, where all were.
    """
    if end.exits and not any(reached for _, _, reached in end.exits):
        return DriverUnreachableError(unreachable(end.exits[0][1]))
    # Another attempt fails in the same way: the Python of executors does not change while the run waits.
    if end.missing is not None:
        return AgentsLostError(advice(end.missing))
    if ends <= RELAUNCHES and not engine.ended:
        return None
    if refused is not None:
        return EnvironmentMismatchError(refused)
    times = f" {ends} times in a row, and nothing trained in between" if ends > 1 else ""
    return AgentsLostError(f"{engine.batch_name} ended{times}: {end.problem}")


def unreachable(reason: str) -> str:
    """The error message when no executor reached the coordinator."""
    return (
        f"executors cannot reach the driver: {reason}; set {HOST_KEY} to an address of the driver that executors "
        f"reach, and {PORT_KEY} to a port that the firewall lets through"
    )
