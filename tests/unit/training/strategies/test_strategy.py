"""What is wrong with a call of ctx.strategy, where no TensorFlow is needed to know."""

import sys

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.errors import SpecError, StrategyError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.tensorflow.strategies.strategy import Strategies


def strategies(backend: Backend = Backend.TENSORFLOW, rank: int = 0, **counts: int) -> Strategies:
    roles = GangSpec(backend=Backend.TENSORFLOW, **counts).roles()
    formation = Formation(rank, tuple(MemberAddress("h", "127.0.0.1", 1, role) for role in roles))
    return Strategies(formation, backend, lambda: None, timeout_s=1.0, clock=SystemClock())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mirored", {}, "a kind is one of .*; did you mean 'mirrored'"),
        (3, {}, r"ctx.strategy\(3 \(int\)\): a kind is one of 'multi_worker_mirrored'"),
        ("mirrored", {"device": 2}, "unknown option 'device', it takes devices; did you mean 'devices'"),
        (None, {"devices": 2}, "name the kind too: mirrored and central_storage take devices"),
        (None, {"speed": 2}, r"ctx.strategy\('default'\): unknown option 'speed'"),
    ],
)
def test_unknown_kinds_and_options(kind: str | None, options: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        strategies().strategy(kind, **options)


@pytest.mark.parametrize(
    ("counts", "rank", "kind", "message"),
    [
        ({"workers": 2}, 0, "parameter_server", "in a gang without parameter servers: pass ps=1"),
        ({"workers": 1, "ps": 1}, 0, "parameter_server", "with the chief as its only worker"),
        ({"workers": 1, "ps": 1}, 0, None, "with the chief as its only worker"),
        ({"workers": 2, "ps": 1}, 0, "multi_worker_mirrored", "in a gang with parameter servers"),
        ({"workers": 2, "ps": 1}, 0, "mirrored", "in a gang with parameter servers"),
        ({"workers": 2}, 1, "mirrored", "they would train 2 separate models"),
        ({"workers": 2}, 0, "one_device", "they would train 2 separate models"),
        ({"workers": 2, "evaluator": True}, 2, "multi_worker_mirrored", "in the evaluator: it watches a cluster"),
    ],
)
def test_strategies_that_the_gang_does_not_have(
    counts: dict[str, int], rank: int, kind: str | None, message: str
) -> None:
    with pytest.raises(StrategyError, match=message):
        strategies(rank=rank, **counts).strategy(kind)


@pytest.mark.parametrize("backend", [Backend.HOROVOD, Backend.NONE])
def test_gangs_of_another_backend_have_no_strategies(backend: Backend) -> None:
    with pytest.raises(StrategyError, match="pass backend='tensorflow'"):
        strategies(backend, workers=2).strategy()


def test_refusals_name_the_line_of_the_call() -> None:
    line = sys._getframe().f_lineno + 2
    with pytest.raises(StrategyError) as caught:
        strategies(Backend.HOROVOD, workers=2).strategy("mirrored")
    assert f"test_strategy.py:{line} in test_refusals_name_the_line_of_the_call()) in a gang" in str(caught.value)
