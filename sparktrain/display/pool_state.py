"""A pool as text and HTML: where its agents are, and what they do."""

from html import escape
from typing import NamedTuple

from sparktrain.base import formatting


class PoolState(NamedTuple):
    """A pool at one moment."""

    engine: str
    """Where its agents run: a master of Spark, or this machine."""
    agents: int
    alive: int
    """Agents that have joined, and are still there."""
    runs: tuple[str, ...]
    """The names of the runs that it is on."""
    is_open: bool


def pool_line(state: PoolState) -> str:
    """The pool on one line."""
    where = formatting.plain(state.engine)
    if not state.is_open:
        return f"pool on {where}: closed; open a new one with sparktrain.pool()"
    names = ", ".join(map(formatting.plain, state.runs))
    work = f"on {'run' if len(state.runs) == 1 else 'runs'} {names}" if names else "idle"
    return f"pool on {where}: {state.alive} of {formatting.count(state.agents, 'agent')}, {work}"


def pool_html(state: PoolState) -> str:
    """The same for the end of a cell."""
    return f"<div><p><b>pool</b>{escape(pool_line(state).removeprefix('pool'))}</p></div>"
