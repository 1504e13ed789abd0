"""A pool as text and HTML: where its agents are, and what they do."""

from html import escape
from typing import NamedTuple, Protocol

from sparktrain import formatting


class PoolState(NamedTuple):
    """A pool at one moment."""

    engine: str
    """Where its agents run: a master of Spark, or this machine."""
    agents: int
    alive: int
    """Agents that have joined, and are still there."""
    run: str | None
    """The name of its current run."""
    is_open: bool


class _Agents(Protocol):
    def state(self) -> PoolState: ...


class ShownPool:
    """Shows a pool at the end of a cell. Reads memory alone."""

    _agents: _Agents

    def __repr__(self) -> str:
        return pool_line(self._agents.state())

    def _repr_html_(self) -> str:
        return f"<div><p><b>pool</b>{escape(repr(self).removeprefix('pool'))}</p></div>"


def pool_line(state: PoolState) -> str:
    """The pool on one line."""
    where = formatting.plain(state.engine)
    if not state.is_open:
        return f"pool on {where}: closed; open a new one with sparktrain.pool()"
    work = "idle" if state.run is None else f"on run {formatting.plain(state.run)}"
    return f"pool on {where}: {state.alive} of {formatting.count(state.agents, 'agent')}, {work}"
