"""What each launch checks of its session before anything starts: the fast part of the doctor."""

import os

from msgspec import Struct

from sparktrain.cluster import preflight
from sparktrain.cluster.jvm import hush
from sparktrain.cluster.launch_warnings import warn
from sparktrain.cluster.preflight import Facts, Session
from sparktrain.cluster.python_version import settle_python
from sparktrain.driver.prepare import PreparedRun


class Admitted(Struct, frozen=True):
    """A run that its session, its cluster and its directory have room for."""

    session: Session
    facts: Facts
    composed: PreparedRun
    """With what its directory has of it."""
    agents: int
    """To start, in all."""
    without_gpus: int
    """So many of them on executors of their own."""


def session_of(spark: Session | None) -> tuple[Session, Facts]:
    """The session, and its facts; has executors of a local master run this Python, and warns of what costs a run
    something. Raises UserError."""
    session = preflight.active_session(spark)
    facts = preflight.read_facts(session, os.cpu_count() or 1)
    settle_python(session, facts)
    hush(session)
    warn(facts)
    return session, facts


def admit(composed: PreparedRun, spark: Session | None, agents: int | None) -> Admitted:
    """Check a run with agents of its own. Blocks on the session, the ResourceManager and the store.

    Raises UserError; writes nothing but a probe of the store.
    """
    session, facts = session_of(spark)
    gang = composed.spec.gang
    preflight.check_gpus(facts, composed.spec.gpus)
    preflight.check_failures(facts, composed.spec.max_retries)
    preflight.check_cluster(facts)
    apart = 0 if agents is not None else preflight.members_without_gpus(facts, gang)
    others = preflight.agents_for(facts, agents, composed.trials, gang.size - apart, composed.concurrent)
    without_gpus = apart * (others // (gang.size - apart))
    ready = composed.authorized(session).attached()
    return Admitted(session, facts, ready, others + without_gpus, without_gpus)
