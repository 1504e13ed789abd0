"""The checks of a run's engine before anything starts: the fast part of the doctor."""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from sparktrain.config.data_sources import PushedSource, StreamSource
from sparktrain.config.environment import KERAS_BACKEND
from sparktrain.driver.backend_choice import check_inherited_keras
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.feeding_slots import FeedingSlots, feeding_slots
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
    engine = engine.sharing(prepared.spec.gpu_mib)
    check_fit(prepared, engine)
    engine.check_cluster()
    count, without_gpus = engine.agents_for(prepared.spec, agents, prepared.trials, prepared.concurrent)
    slots_of_feeds(prepared, engine, count)
    ready = replace(prepared.authorized(engine.tokens).attached(), local=not engine.runs_jobs)
    return Admitted(engine, ready, count, without_gpus)


def check_fit(prepared: PreparedRun, engine: Engine) -> None:
    """Check that a run goes with its engine, also on agents that have started. Raises UserError."""
    engine.check_run(prepared.spec)
    engine.check_data(prepared.data)
    if engine.inherits:
        check_inherited_keras(prepared.spec.gang, prepared.keras or prepared.env.get(KERAS_BACKEND, ""))


def slots_of_feeds(prepared: PreparedRun, engine: Engine, agents: int) -> FeedingSlots:
    """As `feeding_slots`, for the streams of a run. Raises ResourceError; SessionError for a session that is gone."""
    streams = prepared.data.streams
    slots = engine.slots if engine.runs_jobs else _slots_beside(streams)
    pushed = all(isinstance(stream, PushedSource) for stream in streams.values())
    return feeding_slots(tuple(streams), prepared.spec.gang, agents, slots, held=engine.runs_jobs, pushed=pushed)


def _slots_beside(streams: Mapping[str, StreamSource | PushedSource]) -> int | None:
    """The slots of the session that streams come from, where agents have none of them."""
    source = next((stream for stream in streams.values() if isinstance(stream, StreamSource)), None)
    if source is None:
        return None
    from sparktrain.driver.feeds.feed_job import slots_of  # a run on this machine alone needs no Spark

    return slots_of(source)
