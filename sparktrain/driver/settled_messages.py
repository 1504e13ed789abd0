"""Which messages of agents the next coordinator knows by the journal alone: an agent keeps all others for it."""

from collections import deque
from typing import NamedTuple

from sparktrain.base.ids import AgentId
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.driver.metric_recorder import MetricRecorder


class _Mark(NamedTuple):
    """What has to be stored before the messages of an agent up to `number` are settled."""

    number: int
    writer: JournalWriter
    recorder: MetricRecorder
    records: int
    reports: int

    @property
    def settled(self) -> bool:
        return self.writer.progress[1] >= self.records and self.recorder.stored >= self.reports


class SettledMessages:
    """Counts the messages about members of each agent, in the order in which they were folded.

    A message is settled once all records that the machine had made by then are in the journal, and all reports in the
    store. All methods belong to the coordinator's event loop.
    """

    def __init__(self) -> None:
        self._count: dict[AgentId, int] = {}
        self._settled: dict[AgentId, int] = {}
        self._marks: dict[AgentId, deque[_Mark]] = {}

    def add(self, agent: AgentId, writer: JournalWriter | None, recorder: MetricRecorder | None) -> None:
        """A message of the agent was folded; None where it is about a run that is over."""
        count = self._count[agent] = self._count.get(agent, 0) + 1
        if writer is None or recorder is None:
            return
        marks = self._marks.setdefault(agent, deque())
        mark = _Mark(count, writer, recorder, writer.progress[0], recorder.recorded)
        if marks and marks[-1][1:] == mark[1:]:
            marks.pop()
        marks.append(mark)

    def of(self, agent: AgentId) -> int:
        """How many messages of the agent are settled."""
        marks = self._marks.get(agent)
        while marks and marks[0].settled:
            self._settled[agent] = marks.popleft().number
        return self._settled.get(agent, 0)

    def forget(self, agent: AgentId) -> None:
        """The agent is gone."""
        for counts in (self._count, self._settled, self._marks):
            counts.pop(agent, None)
