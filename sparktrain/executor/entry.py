"""The functions that Spark runs on executors: short, over frozen data."""

from collections.abc import Iterator

import pyarrow as pa

from sparktrain.protocol.scouting import ScoutTicket
from sparktrain.protocol.ticket import AgentTicket

EXIT_SCHEMA = "slot long, reason string, reached boolean"
"""The schema of one row for each agent: why it ended, and whether it ever reached the coordinator."""


def agent_task(batches: Iterator[pa.RecordBatch], ticket: AgentTicket) -> Iterator[pa.RecordBatch]:
    """Run one agent until the pool closes; the partition's only row is the slot. A trial's failure raises nothing."""
    from sparktrain.executor.agent import attend  # the driver pickles this module without the agent
    from sparktrain.executor.spark_task import placement, settle_temporary_folder
    from sparktrain.executor.warm_zygote import started

    settle_temporary_folder()
    [slot] = [value for batch in batches for value in batch.column(0).to_pylist()]
    place = placement(slot, ticket)
    reason, reached = attend(place, ticket, *started(place.cpus))
    yield pa.RecordBatch.from_pydict({"slot": [slot], "reason": [reason], "reached": [reached]})


REPORT_SCHEMA = "slot long, report string"
"""The schema of one row for each slot: its report about its host, as JSON."""


def checkup_task(batches: Iterator[pa.RecordBatch], ticket: AgentTicket) -> Iterator[pa.RecordBatch]:
    """Report about this slot and the slots that it reaches, failures included; the partition's only row is the slot."""
    from sparktrain.executor.checkup import check_up  # as above
    from sparktrain.executor.spark_task import settle_temporary_folder

    settle_temporary_folder()
    [slot] = [value for batch in batches for value in batch.column(0).to_pylist()]
    yield pa.RecordBatch.from_pydict({"slot": [slot], "report": [check_up(slot, ticket)]})


def scout_task(batches: Iterator[pa.RecordBatch], ticket: ScoutTicket) -> Iterator[pa.RecordBatch]:
    """Report what this executor sees of a run directory and of the client; the partition's only row is a number."""
    from sparktrain.executor.scout import scout  # as above
    from sparktrain.executor.spark_task import settle_temporary_folder

    settle_temporary_folder()
    [number] = [value for batch in batches for value in batch.column(0).to_pylist()]
    yield pa.RecordBatch.from_pydict({"slot": [number], "report": [scout(ticket)]})
