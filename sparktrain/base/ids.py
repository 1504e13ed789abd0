"""Identifiers: one type for each thing that processes name to each other."""

from typing import NewType

from msgspec import Struct

RunId = NewType("RunId", str)
"""One call of `sweep()` or `launch()`: the name of its run directory."""

TrialId = NewType("TrialId", int)
"""One set of hyperparameters of a run, counted from 0 in the order of proposal."""

AgentId = NewType("AgentId", str)
"""One life of one agent. A restarted agent has a new id, so that a lost id stays lost."""

Generation = NewType("Generation", int)
"""How many times the gang of a trial has started, counted from 1. Messages of older generations are rejected."""

Rank = NewType("Rank", int)
"""A member's number within its gang and generation, counted from 0; rank 0 is the chief."""
CHIEF = Rank(0)


class SparkTask(Struct, frozen=True):
    """The Spark task of an agent, as Spark's driver names it."""

    stage: int
    id: int


class Member(Struct, frozen=True, order=True):
    """One member of the gang of a trial, in one generation. Every message about training carries it."""

    run: RunId
    trial: TrialId
    generation: Generation
    rank: Rank = Rank(0)
    incarnation: int = 0
    """How often it has restarted alone in its generation. Messages of earlier incarnations are rejected."""

    def __str__(self) -> str:
        again = f", restarted alone {self.incarnation} times" if self.incarnation else ""
        return f"trial {self.trial} (generation {self.generation}, rank {self.rank}{again})"
