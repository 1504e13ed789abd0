"""Calls of TFCluster that cannot work are refused before anything starts; roles and numbers are the original's."""

from types import SimpleNamespace
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver.feeds.pushed_feed import PushedFeed
from sparktrain.errors import FunctionError, ResourceError, SessionError, SpecError, StreamError
from sparktrain.tensorflowonspark import TFCluster, single_warnings
from sparktrain.tensorflowonspark.node_context import NodeSettings, executor_of, job_addresses, job_of
from sparktrain.tensorflowonspark.node_handle import NodeHandle
from tests.unit.scripted import of_a_script


@of_a_script
def main_fun(args: Any, ctx: Any) -> None:
    """Never called."""


def run(map_fun: Any = main_fun, executors: Any = 2, ps: Any = 0, sc: Any = None, **options: Any) -> Any:
    return TFCluster.run(st.local(slots=2) if sc is None else sc, map_fun, {}, executors, ps, **options)


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        (
            {"map_fun": lambda args: None},
            FunctionError,
            r"two arguments \(too many positional arguments\): write def map_fun\(args, ctx\)",
        ),
        ({"map_fun": lambda a, b, c: None}, FunctionError, r"two arguments \(missing a required argument: 'c'\)"),
        ({"map_fun": "main_fun"}, FunctionError, "pass a function"),
        ({"executors": 1, "ps": 1}, SpecError, r"num_executors \(1\) must exceed num_ps \(1\): at least one member"),
        ({"executors": 2, "ps": 1, "eval_node": True}, SpecError, r"must exceed num_ps \(1\) and the evaluator"),
        ({"executors": 0}, SpecError, "num_executors is 0"),
        ({"executors": True}, SpecError, "num_executors is"),
        ({"executors": 3}, ResourceError, "has 3 members.*has 2 slots"),
        ({"driver_ps_nodes": True}, SpecError, "on executors"),
        ({"eval_node": True, "input_mode": 1}, SpecError, "InputMode.TENSORFLOW"),
        ({"input_mode": 2}, SpecError, "input_mode is 2"),
        ({"master_node": "boss"}, SpecError, "'chief', 'master' or None"),
        ({"sc": object()}, SpecError, "SparkContext"),
        ({"workers": 3}, SpecError, r"run\(workers=\): num_executors"),
        ({"max_retry": 3}, SpecError, "max_retries"),
        ({"local_steps": 8}, SpecError, r"run\(local_steps=\): .* by strategies of TensorFlow"),
    ],
)
def test_a_call_that_cannot_work_is_refused(asked: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(**asked)


def settings(ps: int = 0, master: str | None = None, evaluator: bool = False) -> NodeSettings:
    return NodeSettings(
        num_ps=ps, master_node=master, eval_node=evaluator, feeds=("input",), default_fs="file://", working_dir="/w"
    )


@pytest.mark.parametrize(
    ("made", "numbers"),
    [
        (settings(), [0, 1, 2, 3]),
        (settings(ps=1), [1, 2, 3, 0]),
        (settings(ps=1, master="chief"), [1, 2, 3, 0]),
        (settings(ps=1, master="chief", evaluator=True), [1, 3, 0, 2]),
        (settings(evaluator=True), [1, 2, 3, 0]),
    ],
)
def test_members_have_the_numbers_of_the_original(made: NodeSettings, numbers: list[int]) -> None:
    """Ranks are chief, workers, servers, evaluator; executors are servers, master, evaluator, workers."""
    assert [executor_of(rank, 4, made) for rank in range(4)] == numbers


@pytest.mark.parametrize(
    ("master", "cluster", "jobs"),
    [
        (None, {"ps": ["c"], "worker": ["a", "b"]}, [("worker", 0), ("worker", 1), ("ps", 0)]),
        ("chief", {"ps": ["c"], "chief": ["a"], "worker": ["b"]}, [("chief", 0), ("worker", 0), ("ps", 0)]),
        ("master", {"ps": ["c"], "master": ["a"], "worker": ["b"]}, [("master", 0), ("worker", 0), ("ps", 0)]),
    ],
)
def test_the_first_worker_has_the_name_of_the_master(
    master: str | None, cluster: dict[str, list[str]], jobs: list[tuple[str, int]]
) -> None:
    assert job_addresses({"chief": ["a"], "worker": ["b"], "ps": ["c"]}, master) == cluster
    assert [job_of(role, 0, master) for role in ("chief", "worker", "ps")] == jobs


def test_the_handle_of_a_member_has_state_and_queues() -> None:
    handle = NodeHandle(("input",), lambda name: None)  # type: ignore[arg-type,return-value] # never called
    assert handle.get("state") == "running"
    handle.set("state", "terminating")
    assert handle.get("state") == "terminating"
    handle.get_queue("error").put("a problem")
    assert handle.get_queue("error").get_nowait() == "a problem"
    with pytest.raises(StreamError, match="get_data_feed"):
        handle.get_queue("input")
    with pytest.raises(StreamError, match=r"'inputs' is no feed of this cluster.*'input'"):
        handle.stream("inputs")


def test_what_is_gone_has_the_reason() -> None:
    cluster = TFCluster.TFCluster(None, None, {}, settings(), 2)  # type: ignore[arg-type] # it does not run
    with pytest.raises(AttributeError, match=r"TFCluster\.nodeRDD is gone"):
        _ = cluster.nodeRDD
    with pytest.raises(AttributeError, match=r"no attribute 'trian'.*did you mean 'train'"):
        _ = cluster.trian
    with pytest.raises(SpecError, match=r"InputMode\.TENSORFLOW"):
        cluster.train(None)
    with pytest.raises(SpecError, match="foreachBatch"):
        cluster.shutdown(ssc=object())


def fed() -> TFCluster.TFCluster:
    """A cluster with one feed; it does not run."""
    return TFCluster.TFCluster(None, None, {"input": PushedFeed("input")}, settings(), 2)  # type: ignore[arg-type]


def rows(jsc: object = None) -> Any:
    """An RDD of a context that is stopped, or runs."""
    return SimpleNamespace(ctx=SimpleNamespace(_jsc=jsc), mapPartitions=None)


@pytest.mark.parametrize("call", ["train", "inference"])
def test_a_feed_that_is_not_there_and_rows_that_are_gone_are_refused(call: str) -> None:
    cluster = fed()
    with pytest.raises(SpecError, match=r"qname is 'inputs', the feeds of this cluster are 'input'.*'input'"):
        getattr(cluster, call)(rows(object()), qname="inputs")
    with pytest.raises(SessionError, match="RDD of a SparkContext that is stopped"):
        getattr(cluster, call)(rows())
    with pytest.raises(SpecError, match="pass an RDD or a DataFrame"):
        getattr(cluster, call)([1, 2, 3])
    stream = type("TransformedDStream", (type("DStream", (), {}),), {})()
    with pytest.raises(SpecError, match=r"got a DStream: .*foreachBatch"):
        getattr(cluster, call)(stream)
    cluster._down = True
    with pytest.raises(SpecError, match=r"comes after cluster\.shutdown\(\)"):
        getattr(cluster, call)(rows(object()))


@pytest.mark.parametrize("epochs", [-1, 1.5, True, "2"])
def test_epochs_are_a_whole_number(epochs: Any) -> None:
    with pytest.raises(SpecError, match="num_epochs is"):
        fed().train(rows(object()), num_epochs=epochs)


def test_a_context_that_is_stopped_is_refused() -> None:
    stopped = SimpleNamespace(parallelize=None, _jsc=None)
    with pytest.raises(SessionError, match="sc is a SparkContext that is stopped"):
        run(sc=stopped)


def test_an_option_that_means_nothing_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    single_warnings._issued.clear()
    with caplog.at_level("WARNING", "sparktrain"):
        for _ in range(2):
            with pytest.raises(ResourceError):
                run(executors=3, release_port=False, log_dir="/logs")
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == [
        "TFCluster.run(release_port=False)",
        "TFCluster.run(log_dir=)",
    ]
