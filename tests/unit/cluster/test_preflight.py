"""The checks before a launch, decided from the facts of a session alone."""

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base import optional_packages
from sparktrain.cluster import preflight
from sparktrain.cluster.spark_facts import Facts
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.errors import ResourceError, SpecError

CORES = 8
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
YARN = {"executor.instances": "4", "executor.cores": "4"}


def facts(master: str, executors: int | None = None, **conf: str) -> Facts:
    return Facts(master, {f"spark.{key}": value for key, value in conf.items()}, CORES, executors)


AGENTS = [
    (facts("local[4]"), None, None, 4),
    (facts("local[4]"), None, 3, 3),
    (facts("local[4]"), None, 100, 4),
    (facts("local[4]"), 2, 100, 2),
    (facts("local[4]"), 4, 1, 4),
    (facts(""), None, 100, preflight.DEFAULT_AGENTS),
    (facts(""), None, 1, 1),
    (facts(""), 50, 100, 50),
    (facts("spark://host:7077", executors=3), None, 100, 3),
    (facts("spark://host:7077", executors=3, **{"executor.cores": "4"}), None, 100, 12),
    (facts("spark://host:7077", executors=3, **{"task.cpus": "4"}), None, 100, 3),
    (facts("spark://host:7077", executors=1), 8, 100, 8),  # the others have not registered yet
    (facts("yarn", executors=1, **YARN), None, 100, 16),
]


@pytest.mark.parametrize(("there", "wanted", "trials", "expected"), AGENTS)
def test_agents_for(there: Facts, wanted: int | None, trials: int | None, expected: int) -> None:
    assert preflight.agents_for(there, wanted, trials) == expected


@pytest.mark.parametrize(
    ("there", "trials", "size", "concurrent", "expected"),
    [
        (facts("local[8]"), 100, 1, 3, 3),
        (facts("local[8]"), 100, 2, 3, 6),
        (facts("local[8]"), 2, 2, 3, 4),
        (facts("local[8]"), None, 3, 9, 6),
        (facts("local[2]"), 100, 1, 5, 2),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), 100, 2, 4, 8),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), 3, 2, 4, 6),
    ],
)
def test_a_limit_counts_trials_and_not_their_members(
    there: Facts, trials: int | None, size: int, concurrent: int, expected: int
) -> None:
    assert preflight.agents_for(there, None, trials, size, concurrent) == expected


def test_more_agents_than_slots_are_refused_with_both_numbers() -> None:
    with pytest.raises(ResourceError, match=r"^agents \(5\) exceeds the 2 slots .*local-cluster\[2,1,1024\]"):
        preflight.agents_for(facts(LOCAL_CLUSTER), 5, 100)


@pytest.mark.parametrize("wanted", [0, -1, "2", 1.5, True])
def test_agents_is_a_positive_whole_number(wanted: Any) -> None:
    with pytest.raises(SpecError, match=r"^agents .*(at least 1|whole number)"):
        preflight.agents_for(facts("local[4]"), wanted, 100)


def test_a_session_without_a_slot_for_one_trial_is_refused_with_the_cause() -> None:
    with pytest.raises(ResourceError, match=r"has 0 slots, and one trial needs 1: .*lower spark\.task\.cpus \(2\)"):
        preflight.agents_for(facts(LOCAL_CLUSTER, **{"task.cpus": "2"}), None, 4)


GANGS = [
    (facts("local[4]"), None, 1, 2, 2),  # a run: one agent for each member
    (facts("local[4]"), 4, 1, 2, 4),  # two stand by
    (facts("local[5]"), None, 100, 2, 4),  # the fifth slot is of no use
    (facts("local[5]"), None, 1, 5, 5),
    (facts("local[8]"), None, 3, 2, 6),
    (facts("local[8]"), None, None, 3, 6),
    (facts(""), None, 1, 4, 4),  # the number of slots is unknown: the run waits for them
    (facts(""), None, 3, 2, 2),
    (facts("spark://host:7077", executors=1), None, 1, 4, 4),
    (facts("spark://host:7077", executors=5), None, 9, 2, 4),
]


@pytest.mark.parametrize(("there", "wanted", "trials", "size", "expected"), GANGS)
def test_agents_for_gangs(there: Facts, wanted: int | None, trials: int | None, size: int, expected: int) -> None:
    assert preflight.agents_for(there, wanted, trials, size) == expected


@given(st.integers(1, 64), st.none() | st.integers(1, 20), st.integers(1, 9))
def test_agents_of_gangs_are_as_many_as_can_be_used(there: int, trials: int | None, size: int) -> None:
    if there < size:
        with pytest.raises(ResourceError, match=rf"the gang has {size} members and the session has {there} slots?: "):
            preflight.agents_for(facts(f"local[{there}]"), None, trials, size)
        return
    agents = preflight.agents_for(facts(f"local[{there}]"), None, trials, size)
    assert agents % size == 0
    assert agents <= there
    assert agents // size == min(there // size, trials if trials is not None else there)


def test_a_gang_with_fewer_slots_than_members_is_refused_with_both_numbers() -> None:
    problem = (
        r"the gang has 4 members and the session has 2 slots: .*local-cluster\[2,1,1024\].*lower the number of workers"
    )
    for wanted in (None, 2, 4):
        with pytest.raises(ResourceError, match=problem):
            preflight.agents_for(facts(LOCAL_CLUSTER), wanted, 1, size=4)


def test_fewer_agents_than_members_are_refused() -> None:
    with pytest.raises(
        ResourceError, match=r"agents \(2\) is below the 3 members of the gang.*raise it, or leave it out"
    ):
        preflight.agents_for(facts("local[4]"), 2, 1, size=3)


def test_a_pool_that_is_too_small_for_a_gang_is_refused_with_both_numbers() -> None:
    preflight.check_pool(2, 2)
    with pytest.raises(ResourceError, match=r"the gang has 2 members and the pool has 1 agent: .*pool\(agents=2\)"):
        preflight.check_pool(1, 2)


@pytest.mark.parametrize(
    ("packages", "gang", "refused"),
    [
        ({"tensorflow"}, GangSpec(workers=2), True),
        ({"tensorflow", "horovod"}, GangSpec(workers=2), False),
        (set(), GangSpec(workers=2), False),  # a driver that trains nothing cannot know
        ({"tensorflow"}, GangSpec(workers=1), False),
        ({"tensorflow"}, GangSpec(workers=2, backend=Backend.TENSORFLOW), False),
        ({"tensorflow"}, GangSpec(workers=2, backend=Backend.NONE), False),
    ],
)
def test_a_ring_of_horovod_needs_horovod_where_there_is_tensorflow(
    packages: set[str], gang: GangSpec, refused: bool
) -> None:
    problem = "needs Horovod.*`make horovod` .*build_horovod.sh.*backend='tensorflow', which needs nothing else"
    with pytest.raises(ResourceError, match=problem) if refused else nullcontext():
        preflight.check_installed(gang, packages.__contains__)


@pytest.mark.parametrize(
    ("packages", "gang", "refused"),
    [
        ({"tensorflow"}, GangSpec(workers=2, backend=Backend.TORCH), True),
        ({"torch"}, GangSpec(workers=2, backend=Backend.TORCH), False),
        (set(), GangSpec(workers=1, backend=Backend.TORCH), False),
        (set(), GangSpec(workers=2, backend=Backend.NONE), False),
    ],
)
def test_a_gang_of_torch_needs_torch_on_executors(packages: set[str], gang: GangSpec, refused: bool) -> None:
    with pytest.raises(ResourceError, match=r"install sparktrain\[torch\]") if refused else nullcontext():
        preflight.check_executors(gang, packages.__contains__)


def test_what_is_installed_is_found_without_importing_it() -> None:
    assert optional_packages.is_installed("sparktrain")
    assert not optional_packages.is_installed("sparktrain_of_nowhere")


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_gpus_are_refused_on_a_local_master_whatever_its_configuration(master: str) -> None:
    conf = {"task.resource.gpu.amount": "1", "executor.resource.gpu.amount": "1"}
    with pytest.raises(ResourceError, match=r"gpus \(1\) are not available on local.*would hang; use local-cluster"):
        preflight.check_gpus(facts(master, **conf), 1)


@pytest.mark.parametrize("amount", [None, "0.5", "2"])
def test_gpus_must_be_what_a_task_gets(amount: str | None) -> None:
    conf = {} if amount is None else {"task.resource.gpu.amount": amount}
    problem = (
        rf"gpus \(1\) .*spark\.task\.resource\.gpu\.amount is {amount or 0}: set spark\.task\.resource\.gpu\.amount=1"
    )
    with pytest.raises(ResourceError, match=problem):
        preflight.check_gpus(facts("yarn", **conf), 1)


@pytest.mark.parametrize("amount", ["1", "1.0", "0.25"])
def test_a_part_of_a_gpu_needs_tasks_with_one_gpu_or_a_fraction(amount: str) -> None:
    preflight.check_gpu_memory(facts("yarn", **{"task.resource.gpu.amount": amount}), 8192)
    preflight.check_gpu_memory(facts("local[2]"), 0)


@pytest.mark.parametrize(
    ("master", "amount", "problem"),
    [
        ("yarn", None, r"gpu\.amount is 0: set it to 1, or to a fraction such as 0\.25 .* with a discovery script"),
        ("yarn", "2", r"part of one GPU for each process, and spark\.task\.resource\.gpu\.amount is 2"),
        ("local[4]", "0.25", r"Spark schedules no GPUs on local\[4\]: use spark=sparktrain\.local\(\) \(--local\)"),
    ],
)
def test_a_part_of_a_gpu_is_refused_without_one(master: str, amount: str | None, problem: str) -> None:
    conf = {} if amount is None else {"task.resource.gpu.amount": amount}
    with pytest.raises(ResourceError, match=rf"^gpu_memory \(8\.0 GiB\) .*{problem}"):
        preflight.check_gpu_memory(facts(master, **conf), 8192)


def test_gpus_that_a_task_gets_are_accepted_and_none_are_needed_for_none() -> None:
    preflight.check_gpus(facts("yarn", **{"task.resource.gpu.amount": "1.0"}), 1)
    preflight.check_gpus(facts("local[*]"), 0)
    assert facts("local[*]").local
    assert not facts(LOCAL_CLUSTER).local


def test_on_yarn_the_agents_job_must_outlive_every_restart_of_a_trial() -> None:
    for restarts, needed in ((0, 21), (3, 24)):
        preflight.check_failures(facts("yarn", **{"task.maxFailures": str(needed)}), restarts)
        with pytest.raises(
            ResourceError, match=rf"^spark\.task\.maxFailures \({needed - 1}\) must be {needed} or more"
        ):
            preflight.check_failures(facts("yarn", **{"task.maxFailures": str(needed - 1)}), restarts)
    with pytest.raises(ResourceError, match=r"\(4\) must be 24 .* set it when you create the session"):
        preflight.check_failures(facts("yarn"), 3)
    preflight.check_failures(facts("local[4]"), 3)


DYNAMIC = {"executor.resource.gpu.amount": "1", "dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("there", "gang", "expected"),
    [
        (facts("yarn", **DYNAMIC), GangSpec(workers=2, ps=1, evaluator=True, backend="tensorflow"), 2),
        (facts("k8s://host", **DYNAMIC), GangSpec(workers=2, ps=1, backend="tensorflow"), 1),
        (facts("yarn", **DYNAMIC), GangSpec(workers=2), 0),
        (facts("yarn", **DYNAMIC | {"dynamicAllocation.enabled": "false"}), GangSpec(ps=1, backend="tensorflow"), 0),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), GangSpec(ps=1, backend="tensorflow"), 0),
        (facts(LOCAL_CLUSTER, **DYNAMIC), GangSpec(ps=1, backend="tensorflow"), 0),
    ],
)
def test_members_that_can_do_without_gpus(there: Facts, gang: GangSpec, expected: int) -> None:
    assert preflight.members_without_gpus(there, gang) == expected
