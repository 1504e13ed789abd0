"""No two agents that are alive have the same GPU, unless Spark divides it within one executor, or gpu_memory does."""

import re
from collections.abc import Callable

import pytest

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId
from sparktrain.driver.gpu_claims import DEAD_S, GpuClaims
from sparktrain.protocol import messages as m


class HandClock(Clock):
    """Sleeps at once, and does what was planned for the time that passes."""

    def __init__(self) -> None:
        self._now = 0.0
        self._plan: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def then(self, after_s: float, action: Callable[[], None]) -> None:
        self._plan.append((self._now + after_s, action))

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
        for at, action in [each for each in self._plan if each[0] <= self._now]:
            self._plan.remove((at, action))
            action()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def join(
    slot: int,
    *devices: str,
    host: str = "gpu-1",
    executor: int | None = None,
    mib: int = 0,
    address: str = "10.0.0.1",
) -> m.Join:
    return m.Join(
        agent=AgentId(f"{slot}"),
        slot=slot,
        host=host,
        pid=100 + slot,
        versions={},
        devices=devices,
        executor=slot if executor is None else executor,
        device_mib=(mib,) * len(devices),
        address=address,
    )


@pytest.mark.parametrize(
    "other",
    [
        join(1, "0", address="10.0.0.2"),
        join(1, "GPU-b"),
        join(1),
        join(1, "GPU-a", host="gpu-2"),
        join(1, "GPU-a", executor=0),
    ],
)
async def test_gpus_that_are_nobody_elses(other: m.Join) -> None:
    claims = GpuClaims(HandClock())
    assert await claims.take(join(0, "GPU-a", "GPU-c", "0")) == ""
    assert await claims.take(other) == ""


async def test_an_agent_that_lives_keeps_its_gpu(clock: HandClock) -> None:
    claims = GpuClaims(clock)
    assert await claims.take(join(0, "GPU-a", "GPU-b")) == ""
    clock.then(0.1, lambda: claims.heard(AgentId("0")))
    assert await claims.take(join(1, "GPU-b", "GPU-c")) == (
        "agents 0 and 1 have the same GPU, GPU-b on gpu-1: Spark's discovery script reports the same ones to all "
        "executors of a host; set spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh, which does "
        "not, or pass gpu_memory= to share GPUs"
    )
    claims.free(AgentId("0"))
    assert await claims.take(join(1, "GPU-b", "GPU-c")) == ""


async def test_an_agent_that_goes_meanwhile_is_no_rival(clock: HandClock) -> None:
    claims = GpuClaims(clock)
    assert await claims.take(join(0, "GPU-a")) == ""
    clock.then(2.0, lambda: claims.free(AgentId("0")))
    assert await claims.take(join(1, "GPU-a")) == ""
    assert 2.0 <= clock.now() < 2.0 + DEAD_S


async def test_an_agent_that_is_lost_and_not_yet_known_to_be_is_no_rival(clock: HandClock) -> None:
    claims = GpuClaims(clock)
    assert await claims.take(join(0, "GPU-a")) == ""
    claims.heard(AgentId("0"))
    assert await claims.take(join(1, "GPU-a")) == ""
    assert DEAD_S <= clock.now() < DEAD_S + 1.0


async def test_agents_share_a_gpu_as_long_as_their_memory_fits(clock: HandClock) -> None:
    claims = GpuClaims(clock, gpu_mib=20_000)
    for slot, executor in ((0, 0), (1, 1), (2, 1), (3, 3)):
        assert await claims.take(join(slot, "GPU-a", executor=executor, mib=81_559)) == ""
    assert await claims.take(join(4, "GPU-b", mib=81_559)) == ""
    assert await claims.take(join(5, "GPU-a", host="gpu-2", mib=81_559)) == ""
    assert clock.now() == 0.0, "none waits"
    clock.then(0.1, lambda: [claims.heard(AgentId(str(slot))) for slot in range(4)])
    assert await claims.take(join(6, "GPU-a", executor=1, mib=81_559)) == (
        "gpu_memory (19.5 GiB) for each of 5 agents is more than their GPU has, GPU-a on gpu-1 (79.6 GiB): lower it, "
        "or have fewer tasks share a GPU, by a larger spark.task.resource.gpu.amount"
    )
    claims.free(AgentId("2"))
    assert await claims.take(join(6, "GPU-a", executor=1, mib=81_559)) == ""


async def test_an_agent_takes_the_slice_of_one_that_is_lost(clock: HandClock) -> None:
    claims = GpuClaims(clock, gpu_mib=30_000)
    for slot in range(2):
        assert await claims.take(join(slot, "GPU-a", mib=81_559)) == ""
    clock.then(0.1, lambda: claims.heard(AgentId("0")))
    assert await claims.take(join(2, "GPU-a", mib=81_559)) == "", "agent 1 sends nothing any more"
    assert DEAD_S <= clock.now() < DEAD_S + 1.0


async def test_an_agent_that_joins_again_keeps_its_slice(clock: HandClock) -> None:
    claims = GpuClaims(clock, gpu_mib=40_000)
    for slot in (0, 1, 0):
        assert await claims.take(join(slot, "GPU-a", mib=81_559)) == ""
    assert clock.now() == 0.0


@pytest.mark.parametrize(
    ("mib", "others", "problem"),
    [
        (
            16_000,
            (),
            r"^gpu_memory \(19\.5 GiB\) for each of 1 agent is more than .*, GPU-a on gpu-1 \(15\.6 GiB\): low",
        ),
        (
            0,
            (1,),
            "^gpu_memory .* the memory of the GPU that 2 agents share, GPU-a on gpu-1, and nvidia-smi does not",
        ),
    ],
)
async def test_memory_that_a_gpu_lacks_or_that_is_unknown_is_refused(
    clock: HandClock, mib: int, others: tuple[int, ...], problem: str
) -> None:
    claims = GpuClaims(clock, gpu_mib=20_000)
    for slot in others:
        assert await claims.take(join(slot, "GPU-a", mib=mib)) == ""
        clock.then(0.1, lambda slot=slot: claims.heard(AgentId(str(slot))))
    assert re.match(problem, await claims.take(join(9, "GPU-a", mib=mib)))


async def test_a_gpu_of_unknown_memory_is_for_one_agent(clock: HandClock) -> None:
    claims = GpuClaims(clock, gpu_mib=20_000)
    assert await claims.take(join(0, "GPU-a")) == ""
    assert await claims.take(join(1)) == "", "an executor for members that need no GPU"
