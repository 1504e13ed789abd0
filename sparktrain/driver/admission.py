"""The checks of a run's engine before anything starts: the fast part of the doctor."""

from msgspec import Struct

from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.prepare import PreparedRun


class Admitted(Struct, frozen=True):
    """A run that its engine, its cluster and its directory have room for."""

    engine: Engine
    prepared: PreparedRun
    """The run, with the data of its directory."""
    agents: int
    """Number of agents to start, in all."""
    without_gpus: int
    """Number of them on executors of their own, without GPUs."""


def admit(prepared: PreparedRun, engine: Engine, agents: int | None) -> Admitted:
    """Check a run with agents of its own. Blocks on the engine, the ResourceManager and the store.

    Raises UserError; writes nothing but a probe of the store.
    """
    engine.check_run(prepared.spec)
    engine.check_cluster()
    count, without_gpus = engine.agents_for(prepared.spec, agents, prepared.trials, prepared.concurrent)
    ready = prepared.authorized(engine.tokens).attached()
    return Admitted(engine, ready, count, without_gpus)
