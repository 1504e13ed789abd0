"""The checks before a launch: whether the session and the cluster have what a call asks for."""

from collections.abc import Callable

from sparktrain.base import formatting
from sparktrain.base.optional_packages import is_installed
from sparktrain.cluster.spark_facts import (
    DEFAULT_FAILURES,
    FAILURES_KEY,
    YARN,
    Facts,
    registered_slots,
    slots,
)
from sparktrain.config.backends import BACKENDS, Backend
from sparktrain.config.environment import TITLES
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.gpu_slices import slice_text
from sparktrain.config.quantities import count
from sparktrain.errors import ResourceError
from sparktrain.state.restart import EXCUSED_LIMIT

"""Packages that connect a gang by themselves, each with an extra of its name."""
DEFAULT_AGENTS = 2
"""Agents to start in a session with an unknown number of slots."""


def check_agents(agents: int | None) -> None:
    """Raises SpecError when `agents` is given and is not a valid number of agents."""
    if agents is not None:
        count(agents, "agents", least=1)


def agents_for(
    facts: Facts, agents: int | None, trials: int | None, size: int = 1, concurrent: int | None = None
) -> int:
    """How many agents to start for trials of `size` members: `agents`, or as many as the slots and trials can use.

    At most `concurrent` trials train at a time. Where the number of slots is unknown, that limit sets it.

    Raises SpecError when `agents` is not a valid number, ResourceError when it exceeds the slots or is below `size`, or
    when the session has fewer slots than one trial needs.
    """
    check_agents(agents)
    slot_count = slots(facts)
    if slot_count is None and concurrent is not None:
        slot_count = concurrent * size  # Spark adds executors on request
    if agents is not None:
        _check_wanted(facts, agents, slot_count, size)
        return agents
    if slot_count is None and size > 1:
        # Executors that have not registered yet may bring the rest; the run waits for them until `start_timeout`.
        slot_count = max(registered_slots(facts) or DEFAULT_AGENTS, size)
    elif slot_count is None:
        slot_count = registered_slots(facts)
    if slot_count is not None and slot_count < size:
        raise _too_few_slots(facts, slot_count, size)
    slot_count = slot_count if slot_count is not None else DEFAULT_AGENTS
    limits = [limit for limit in (slot_count // size, trials, concurrent) if limit is not None]
    return size * min(limits)


def check_standby(slot_count: int | None, agents: int | None, gang: GangSpec, place: str, remedy: str) -> None:
    """Check that a gang has agents for its members and for `standby` processes beside them.

    `place` has `slot_count` slots, where that is known, and `remedy` is how to get more. Raises ResourceError.
    """
    if not gang.standby:
        return
    seats = gang.size + gang.standby
    subject = f"standby ({gang.standby}) beside {gang.size} members needs {seats} slots"
    if slot_count is not None and slot_count < seats:
        raise ResourceError(f"{subject}, and {place} has {slot_count}: {remedy}, or lower standby")
    if agents is not None and agents < seats:
        raise ResourceError(f"{subject}, and agents is {agents}: raise it to {seats}, leave it out, or lower standby")


def _check_wanted(facts: Facts, agents: int, slot_count: int | None, size: int) -> None:
    if slot_count is not None and slot_count < size:
        raise _too_few_slots(facts, slot_count, size)
    if slot_count is not None and agents > slot_count:
        raise ResourceError(
            f"agents ({agents}) exceeds the {slot_count} slots of the session ({facts.master}): lower it, or give the "
            f"session more executors or cores (spark.executor.instances, spark.executor.cores)"
        )
    if agents < size:
        raise too_few_agents(agents, size)


def too_few_agents(agents: int, size: int) -> ResourceError:
    """The error of a call that asks for fewer agents than its gang has members."""
    return ResourceError(
        f"agents ({agents}) is below the {size} members of the gang, and each needs one: raise it, or leave it out"
    )


def _too_few_slots(facts: Facts, slot_count: int, size: int) -> ResourceError:
    remedy = f"give it more executors or cores, or lower spark.task.cpus ({facts.task_cpus})"
    slots_there = formatting.count(slot_count, "slot")
    if size == 1:
        return ResourceError(f"the session ({facts.master}) has {slots_there}, and one trial needs 1: {remedy}")
    return ResourceError(
        f"the gang has {size} members and the session has {slots_there}: a gang starts only when it has all of them; "
        f"on {facts.master}, {remedy}, or lower the number of workers"
    )


def check_pool(agents: int, size: int) -> None:
    """Raises ResourceError when a pool of `agents` is too small for gangs of `size` members."""
    if agents < size:
        raise ResourceError(
            f"the gang has {size} members and the pool has {formatting.count(agents, 'agent')}: open it with "
            f"sparktrain.pool(agents={size}), or lower the number of workers"
        )


def members_without_gpus(facts: Facts, gang: GangSpec) -> int:
    """How many members of a gang, those that do not train, can have executors of their own without GPUs.

    Only a cluster manager that adds executors on request can give them other resources than the session's.
    """
    # Spark refuses another profile elsewhere: "ResourceProfiles are only supported on YARN and Kubernetes and
    # Standalone with dynamic allocation enabled".
    apart = facts.master == YARN or facts.on_kubernetes or facts.master.startswith("spark://")
    has_gpus = "spark.executor.resource.gpu.amount" in facts.conf
    if not (apart and has_gpus and facts.conf.get("spark.dynamicAllocation.enabled") == "true"):
        return 0
    return gang.size - gang.workers


def check_gpus(facts: Facts, gpus: int) -> None:
    """Raises ResourceError when a trial needs GPUs that Spark does not give its tasks."""
    if gpus == 0:
        return
    # Spark reports nothing there: on local[2], a job with tasks that need a GPU waited until it was killed.
    if facts.local:
        raise ResourceError(
            f"gpus ({gpus}) are not available on {facts.master}: Spark schedules no GPUs on local masters, and its job "
            f"would hang; use local-cluster[1,1,1024], a standalone cluster, YARN or Kubernetes"
        )
    amount = float(facts.task_gpus)
    if amount != gpus:
        raise ResourceError(
            f"gpus ({gpus}) must be what Spark gives a task, and spark.task.resource.gpu.amount is {amount:g}: set "
            f"spark.task.resource.gpu.amount={gpus} and spark.executor.resource.gpu.amount, with a discovery script, "
            f"when you create the session"
        )


def check_gpu_memory(facts: Facts, gpu_mib: int) -> None:
    """Raises ResourceError when members need a part of one GPU, and Spark gives their tasks none, or several GPUs."""
    if gpu_mib == 0:
        return
    subject = slice_text(gpu_mib)
    if facts.local:
        raise ResourceError(
            f"{subject} is a part of a GPU, and Spark schedules no GPUs on {facts.master}: use "
            "spark=sparktrain.local() (--local), which shares the GPUs of this machine, or a cluster"
        )
    amount = float(facts.task_gpus)
    if not 0 < amount <= 1:
        raise ResourceError(
            f"{subject} is a part of one GPU for each process, and spark.task.resource.gpu.amount is {amount:g}: set "
            "it to 1, or to a fraction such as 0.25 for four tasks on each GPU, and "
            "spark.executor.resource.gpu.amount, with a discovery script, when you create the session"
        )


def check_failures(facts: Facts, restarts: int) -> None:
    """Raises ResourceError when Spark would end the job of the agents before a trial has used all its restarts.

    Spark counts a lost container as a failure of its task, also after a preemption; only YARN preempts containers.
    """
    if facts.master != YARN:
        return
    limit = facts.number(FAILURES_KEY, DEFAULT_FAILURES)
    needed = restarts + EXCUSED_LIMIT + 1
    if limit < needed:
        raise ResourceError(
            f"{FAILURES_KEY} ({limit}) must be {needed} or more on YARN: Spark counts lost containers as failures "
            f"(agents themselves never fail), and a trial may restart {restarts} times, and {EXCUSED_LIMIT} times more "
            f"when YARN preempts its containers; set it when you create the session"
        )


def check_installed(gang: GangSpec, installed: Callable[[str], bool] = is_installed) -> None:
    """Raises ResourceError when a gang's ring needs Horovod, and this machine has TensorFlow without it.

    A driver without TensorFlow trains nothing and cannot know what its executors have: there is no error then.
    """
    if gang.size == 1 or gang.backend is not Backend.HOROVOD:
        return
    if installed("tensorflow") and not installed("horovod"):
        raise ResourceError(
            f"backend 'horovod' of a gang of {gang.size} needs Horovod, and it is not installed beside TensorFlow: "
            "build it with `make horovod` (scripts/build_horovod.sh) here and for the executors, or pass "
            "backend='tensorflow', which needs nothing else"
        )


def check_executors(gang: GangSpec, have: Callable[[str], bool]) -> None:
    """Raises ResourceError when executors lack the package that connects a gang. `have` may block on them."""
    package = BACKENDS[gang.backend].on_executors
    if gang.size > 1 and package and not have(package):
        raise ResourceError(
            f"backend {gang.backend.value!r} of a gang of {gang.size} needs {TITLES[package]}, and the executors have "
            f"none: install sparktrain[{package}] for their Python, or pass a backend of what they have"
        )


def check_cluster(facts: Facts) -> None:
    """Raises ResourceError when YARN will never give the session an executor. Blocks for some seconds at most; other
    cluster managers are not queried."""
    if facts.master == YARN:
        from sparktrain.cluster import yarn_client  # HTTP, which only YARN needs

        yarn_client.check(facts.conf)
