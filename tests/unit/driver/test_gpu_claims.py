"""No two agents that are alive have the same GPU, unless Spark divides it within one executor."""

from collections.abc import Callable

import pytest

from sparktrain.clock import Clock
from sparktrain.driver.gpu_claims import DEAD_S, GpuClaims
from sparktrain.ids import AgentId
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


def join(slot: int, *devices: str, host: str = "gpu-1", executor: int | None = None) -> m.Join:
    return m.Join(AgentId(f"{slot}"), slot, host, 100 + slot, {}, devices, slot if executor is None else executor)


@pytest.mark.parametrize(
    "other", [join(1, "GPU-b"), join(1), join(1, "GPU-a", host="gpu-2"), join(1, "GPU-a", executor=0)]
)
async def test_gpus_that_are_nobody_elses(other: m.Join) -> None:
    claims = GpuClaims(HandClock())
    assert await claims.take(join(0, "GPU-a", "GPU-c")) == ""
    assert await claims.take(other) == ""


async def test_an_agent_that_lives_keeps_its_gpu(clock: HandClock) -> None:
    claims = GpuClaims(clock)
    assert await claims.take(join(0, "GPU-a", "GPU-b")) == ""
    clock.then(0.1, lambda: claims.heard(AgentId("0")))
    assert await claims.take(join(1, "GPU-b", "GPU-c")) == (
        "agents 0 and 1 have the same GPU, GPU-b on gpu-1: Spark's discovery script reports the same ones to all "
        "executors of a host; set spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh, which does not"
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
