"""Whether a call fits an engine: checks before anything starts."""

from collections.abc import Mapping

from sparktrain.config.data_sources import PushedSource, StreamSource
from sparktrain.config.environment import KERAS_BACKEND
from sparktrain.driver.backend_choice import check_inherited_keras
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.feeding_slots import FeedingSlots, feeding_slots
from sparktrain.driver.prepare.checked_call import CheckedCall


def check_fit(call: CheckedCall, engine: Engine) -> None:
    """Check that a run goes with its engine, also on agents that have started. Raises UserError."""
    spec = call.definition.spec
    engine.check_run(spec)
    engine.check_data(call.data)
    if engine.inherits:
        check_inherited_keras(spec.gang, call.keras or call.env.get(KERAS_BACKEND, ""))


def slots_of_feeds(call: CheckedCall, engine: Engine, agents: int) -> FeedingSlots:
    """As `feeding_slots`, for the streams of a run. Raises ResourceError; SessionError for a session that is gone."""
    streams = call.data.streams
    slots = engine.slots if engine.runs_jobs else _slots_beside(streams)
    pushed = all(isinstance(stream, PushedSource) for stream in streams.values())
    return feeding_slots(tuple(streams), call.definition.spec.gang, agents, slots, held=engine.runs_jobs, pushed=pushed)


def _slots_beside(streams: Mapping[str, StreamSource | PushedSource]) -> int | None:
    """The slots of the session that streams come from, where agents have none of them."""
    source = next((stream for stream in streams.values() if isinstance(stream, StreamSource)), None)
    if source is None:
        return None
    from sparktrain.driver.feeds.feed_job import slots_of  # a run on this machine alone needs no Spark

    return slots_of(source)
