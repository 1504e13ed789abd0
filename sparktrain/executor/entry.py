"""What Spark runs on executors: short functions over frozen data."""

from collections.abc import Iterator

import pyarrow as pa

from sparktrain.protocol.ticket import AgentTicket

EXIT_SCHEMA = "slot long, reason string, reached boolean"
"""One row for each agent: why it ended, and whether it ever reached the coordinator."""


def agent_task(batches: Iterator[pa.RecordBatch], ticket: AgentTicket) -> Iterator[pa.RecordBatch]:
    """Be one agent until the pool closes; the partition's only row is the slot. Never raises for a trial's failure."""
    from sparktrain.executor.agent import attend  # the driver pickles this module, and needs nothing of the agent
    from sparktrain.executor.spark_task import placement

    [slot] = [value for batch in batches for value in batch.column(0).to_pylist()]
    reason, reached = attend(placement(slot, ticket), ticket)
    yield pa.RecordBatch.from_pydict({"slot": [slot], "reason": [reason], "reached": [reached]})


TOLD_SCHEMA = "slot long, told string"
"""One row for each slot: what it tells of its host, as JSON."""


def checkup_task(batches: Iterator[pa.RecordBatch], ticket: AgentTicket) -> Iterator[pa.RecordBatch]:
    """Tell what this slot is, and whom it reaches; the partition's only row is the slot. What fails is told, too."""
    from sparktrain.executor.checkup import check_up  # as above

    [slot] = [value for batch in batches for value in batch.column(0).to_pylist()]
    yield pa.RecordBatch.from_pydict({"slot": [slot], "told": [check_up(slot, ticket)]})
