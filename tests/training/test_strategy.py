"""TensorFlow's strategies in gangs of real processes, forked from one that has only imported TensorFlow."""

from typing import Any

import pytest

from tests.training import cluster_functions as functions
from tests.training.clusters import results, run

MIRRORED = pytest.mark.all(case="the mirrored loop", covered_by="the loop on central storage")

TWO = ("chief", "worker")
SERVED = ("chief", "worker", "ps")


@pytest.fixture(scope="module")
def alone() -> Any:
    """What `fit` gives on one device of one process."""
    (result,) = results(functions.fit, ("chief",))
    assert result["strategy"] == "_DefaultDistributionStrategy"
    return result


def assert_same_training(result: Any, alone: Any) -> None:
    assert result["replicas"] == 2
    assert result["iterations"] == alone["iterations"] == 8
    assert result["weights"] == pytest.approx(alone["weights"], abs=1e-6)
    assert result["evaluate"] == pytest.approx(alone["evaluate"], abs=1e-5)
    assert result["predict"] == pytest.approx(alone["predict"], abs=1e-5)
    assert len(result["predict"]) == 90
    for name, values in alone["history"].items():
        assert result["history"][name] == pytest.approx(values, abs=1e-5)


def test_fit_of_two_members_is_fit_of_one(alone: Any) -> None:
    for member in results(functions.fit, TWO):
        assert member["strategy"] == "CollectiveAllReduceStrategy"
        assert_same_training(member, alone)


def test_a_loop_of_two_members_is_fit_of_one(alone: Any) -> None:
    for member in results(functions.loop, TWO):
        assert member["weights"] == pytest.approx(alone["weights"], abs=1e-6)
        assert member["iterations"] == 8


def test_what_keras_cannot_do_between_members_is_refused_by_each() -> None:
    for result in results(functions.limits, TWO):
        assert result["same"]
        assert result["released"] == [True], "the port was let go before TensorFlow's server listened"
        assert "without parameter servers" in result["other"]
        for name in ("steps", "steps of evaluate"):
            assert "steps_per_execution=2 fails there" in result[name]
        assert "jit_compile=True fails there" in result["jit"]
        assert "metric 'foreign' was made outside of the scope" in result["metric"]
        assert "model.predict_on_batch() under strategy 'multi_worker_mirrored'" in result["predict_on_batch"]
        assert "StrategyError: ctx.strategy() connects the members of this gang in place of a ring" in result["ring"]


def test_keras_still_has_the_bugs_of_the_workaround() -> None:
    for result in results(functions.upstream, TWO):
        assert result["version"] in result["measured"], "test this version, and add it or drop the workaround"
        assert result["build"].startswith("ValueError: Attempt to convert a value (PerReplica")
        assert "Invalid reduction dimension 0" in result["reduce"]
        assert f"Keras {result['version']} is not tested" in result["refused"]


def test_the_survivor_of_a_dead_member_recognizes_the_loss() -> None:
    survivor, dead = run(functions.dies, TWO)
    assert dead.status == -9
    assert survivor.lost, survivor.error


def test_errors_of_a_broken_cluster_differ_from_those_of_the_function() -> None:
    (known,) = results(functions.recognised, ("chief",))
    assert [name for name, lost in known.items() if not lost] == ["unrelated", "internal", "argument"]


def test_a_missing_member_is_named() -> None:
    chief, _ = run(functions.absent, TWO, timeout_s=1.0, idle=[1])
    assert chief.result.startswith("FormError: rank 1 (worker) at here:")
    assert "did not come within 1 s; every member that trains must call ctx.strategy()" in chief.result
    assert chief.ended_s < 10


@pytest.mark.parametrize(
    ("roles", "params"), [(TWO, {}), (("chief",), {"kind": "mirrored", "devices": 2})], ids=["members", "devices"]
)
def test_a_strategy_after_an_op_is_refused_at_once(roles: tuple[str, ...], params: dict[str, Any]) -> None:
    for end in run(functions.late, roles, **params):
        assert end.result.startswith("StrategyError: ctx.strategy(")
        assert "came after TensorFlow had started" in end.result
        assert end.ended_s < 10


def test_a_coordinator_trains_on_parameter_servers_which_end_on_request() -> None:
    chief, *servers = run(functions.coordinate, SERVED)
    assert not chief.error
    assert chief.result["strategy"] == "ParameterServerStrategyV2"
    assert chief.result["last"] < chief.result["first"] / 5
    assert [server.status for server in servers] == [-15, -15]
    assert all(server.ended_s < 2 for server in servers)


def test_servers_of_a_dead_chief_end_on_request() -> None:
    chief, *servers = run(functions.coordinate, SERVED, suicide=True)
    assert chief.status == -9
    assert [server.status for server in servers] == [-15, -15]
    assert all(server.ended_s < 2 for server in servers)


def test_the_chief_of_a_dead_parameter_server_recognizes_the_loss() -> None:
    _, _, chief = run(functions.coordinate, ("ps", "worker", "chief"), kill=0)
    assert chief.error.startswith("UnavailableError")
    assert chief.lost


def test_what_keras_cannot_do_on_parameter_servers_is_refused() -> None:
    result = results(functions.served_limits, SERVED)[0]
    assert result["released"] == [True]
    assert result["shards"] == 2
    assert "StrategyError: variable_partitioner cuts variables into shards" in result["keras"]
    for name in (*functions.TRAIN_AND_TEST, "predict", "predict_on_batch"):
        assert f"StrategyError: model.{name}() under strategy 'parameter_server'" in result[name]


@pytest.mark.parametrize("kind", [pytest.param("mirrored", marks=MIRRORED), "central_storage"])
def test_a_loop_on_two_devices_is_fit_on_one(kind: str, alone: Any) -> None:
    both = results(functions.loop, ("chief",), kind=kind, devices=2)[0]
    assert both["weights"] == pytest.approx(alone["weights"], abs=1e-6)
    assert both["iterations"] == 8


def test_mirrored_fit_on_two_devices_is_fit_on_one(alone: Any) -> None:
    assert_same_training(results(functions.fit, ("chief",), kind="mirrored", devices=2)[0], alone)


def test_what_keras_cannot_do_on_mirrored_devices_is_refused() -> None:
    calls = ["predict_on_batch", "steps", "jit", "batch norm", "dropout"]
    result = results(functions.local, ("chief",), kind="mirrored", calls=calls)[0]
    assert "StrategyError: model.predict_on_batch() under strategy 'mirrored'" in result["predict_on_batch"]
    assert "StrategyError: model.fit() under strategy 'mirrored': steps_per_execution=2" in result["steps"]
    assert "StrategyError: model.fit() under strategy 'mirrored': jit_compile=True" in result["jit"]
    assert result["batch norm"] == result["dropout"] == "runs"


def test_what_keras_does_wrongly_under_central_storage_is_refused() -> None:
    result = results(functions.local, ("chief",), kind="central_storage")[0]
    for name in (*functions.TRAIN_AND_TEST, "predict_on_batch"):
        assert f"StrategyError: model.{name}() under strategy 'central_storage': Keras adds up" in result[name]
    assert "StrategyError: metric 'loss' within the scope of strategy 'central_storage'" in result["compile"]
    for name in ("batch norm", "dropout"):
        assert "StrategyError: a layer changes a variable of its own" in result[name]
    assert result["predict"] == "96"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, "_DefaultDistributionStrategy"),
        ("one_device", "OneDeviceStrategy"),
        ("multi_worker_mirrored", "CollectiveAllReduceStrategy"),
    ],
)
def test_strategies_of_a_single_member(kind: str | None, name: str) -> None:
    assert results(functions.kind, ("chief",), kind=kind) == [["chief", name]]


def test_the_evaluator_enters_the_function_with_the_default_strategy() -> None:
    _, evaluator = results(functions.kind, ("chief", "evaluator"))
    assert evaluator == ["evaluator", "_DefaultDistributionStrategy"]


@pytest.mark.all(
    case="the losses of the examples of four strategies",
    covered_by="`examples/test_gangs`: the accuracy of these examples",
)
@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("multi_worker_mirrored", TWO),
        ("parameter_server", SERVED),
        ("mirrored", ("chief",)),
        ("central_storage", ("chief",)),
    ],
)
def test_examples_learn_to_classify_clothes(name: str, roles: tuple[str, ...]) -> None:
    chief = results(functions.example, roles, name=name)[0]
    assert chief["accuracy"] > 0.7
    assert chief["losses"] == sorted(chief["losses"], reverse=True)
    assert len(chief["losses"]) == 2
