"""Programs of TensorFlowOnSpark on our clusters: both input modes, feeds, results, losses and the end."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.errors import RunFailedError, RunStoppedError
from sparktrain.tensorflowonspark import TFCluster
from tests.support.processes import wait_until

ORIGINAL_TESTS = pytest.mark.all(
    case="tests of the original", covered_by="feeds, results, losses and the end of a cluster"
)

NONE_KILLED = pytest.mark.all(case="results of rows, and no member is killed", covered_by="a member is killed")

ROWS = 20_000
SPARK = TFCluster.InputMode.SPARK


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two members at a time on this machine, by forks: Spark's two slots are for feeding."""
    with st.pool(st.local(slots=3), preload=["tensorflow"]) as made:
        yield made


def take_all(args: Any, ctx: Any) -> None:
    """Write down each batch that this member takes, in a file for its generation."""
    feed = ctx.get_data_feed()
    path = Path(args["folder"], f"{ctx.sparktrain.generation}-{ctx.executor_id}.jsonl")
    with path.open("a") as out:
        while not feed.should_stop():
            rows = feed.next_batch(100)
            out.write(json.dumps(rows) + "\n")
            out.flush()
            if Path(args["folder"], "kill").exists() and (ctx.executor_id, ctx.sparktrain.generation) == (1, 1):
                os.kill(os.getpid(), signal.SIGKILL)


def taken(folder: Path, generation: int | str = "*") -> Counter[int]:
    """How often members of a generation have taken each row."""
    lines = [line for path in folder.glob(f"{generation}-*.jsonl") for line in path.read_text().splitlines()]
    return Counter(row for line in lines for row in json.loads(line))


def start(sc: Any, folder: Path, map_fun: Any = take_all, executors: int = 2, **options: Any) -> TFCluster.TFCluster:
    asked = {"input_mode": SPARK, "dir": str(folder / "runs"), **options}
    return TFCluster.run(sc, map_fun, {"folder": str(folder)}, executors, 0, **asked)


def test_each_epoch_reaches_the_members_and_train_returns_when_they_have_taken_it(
    spark: SparkSession, pool: st.Pool, tmp_path: Path
) -> None:
    cluster = start(pool, tmp_path)
    cluster.train(spark.sparkContext.range(0, ROWS, 1, 4), num_epochs=2)
    assert taken(tmp_path).total() >= 2 * ROWS - 2 * 99, "all but what is less than a batch of each member"
    cluster.train(spark.range(ROWS, ROWS + 1000, 1, 3).rdd.map(lambda row: row.id), num_epochs=1)
    cluster.shutdown(grace_secs=30)
    assert taken(tmp_path) == Counter({**dict.fromkeys(range(ROWS), 2), **dict.fromkeys(range(ROWS, ROWS + 1000), 1)})
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["1-0.jsonl", "1-1.jsonl"]
    cluster.shutdown()


@pytest.mark.all(
    case="a member is killed while a cluster is fed",
    covered_by="results of rows while a member is killed; `spark/test_streams`: a killed member is fed again",
)
def test_the_feed_goes_on_when_a_member_is_killed(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    cluster = start(pool, tmp_path)
    cluster.train(spark.sparkContext.range(0, ROWS, 1, 4), num_epochs=1)
    cluster.shutdown(grace_secs=30)
    assert taken(tmp_path, 2) == Counter(range(ROWS)), "the second generation gets every row of the epoch"


def squares(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed(train_mode=False)
    first = True
    while not feed.should_stop():
        rows = feed.next_batch(64)
        if first and Path(args["folder"], "kill").exists() and (ctx.executor_id, ctx.sparktrain.generation) == (1, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        first = False
        if rows:
            feed.batch_results([row * row for row in rows])


@pytest.mark.parametrize("killed", [True, pytest.param(False, marks=NONE_KILLED)])
def test_each_row_has_one_result_in_its_place(spark: SparkSession, pool: st.Pool, tmp_path: Path, killed: bool) -> None:
    if killed:
        (tmp_path / "kill").touch()
    cluster = start(pool, tmp_path, squares)
    results = cluster.inference(spark.sparkContext.range(0, ROWS, 1, 5))
    assert results.collect() == [row * row for row in range(ROWS)]
    assert results.sum() == sum(row * row for row in range(ROWS)), "an RDD may be evaluated again"
    cluster.shutdown(grace_secs=30)


@pytest.mark.all(case="members that need no more rows", covered_by="feeds, results, losses and the end of a cluster")
def test_members_that_need_no_more_rows_end_the_call(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    def some(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        feed.next_batch(10)
        feed.terminate()

    cluster = start(pool, tmp_path, some)
    cluster.train(spark.sparkContext.range(0, 10**7, 1, 4), num_epochs=1)
    cluster.train(spark.sparkContext.range(0, 10**7, 1, 4), num_epochs=1)
    cluster.shutdown(grace_secs=30)


def test_a_member_that_fails_after_the_feed_is_the_error_of_shutdown(
    spark: SparkSession, pool: st.Pool, tmp_path: Path
) -> None:
    def fails_at_the_end(args: Any, ctx: Any) -> None:
        take_all(args, ctx)
        if ctx.executor_id == 1:
            raise ValueError("the model cannot be saved")

    cluster = start(pool, tmp_path, fails_at_the_end)
    cluster.train(spark.sparkContext.range(0, 100, 1, 2), num_epochs=1)
    with pytest.raises(RunFailedError, match="the model cannot be saved"):
        cluster.shutdown(grace_secs=30)


def test_a_member_that_fails_in_the_middle_is_the_error_of_train(
    spark: SparkSession, pool: st.Pool, tmp_path: Path
) -> None:
    def fails(args: Any, ctx: Any) -> None:
        ctx.get_data_feed().next_batch(10)
        raise ValueError("a broken model")

    cluster = start(pool, tmp_path, fails)
    with pytest.raises(RunFailedError, match="a broken model"):
        cluster.train(spark.sparkContext.range(0, 10**7, 1, 4), num_epochs=1)
    with pytest.raises(RunFailedError, match="a broken model"):
        cluster.shutdown(grace_secs=30)


def test_a_stuck_member_does_not_hold_up_shutdown(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    def hangs(args: Any, ctx: Any) -> None:
        Path(args["folder"], f"pid-{ctx.executor_id}").write_text(str(os.getpid()))
        while True:
            pause(0.05)

    cluster = start(pool, tmp_path, hangs, input_mode=TFCluster.InputMode.TENSORFLOW)
    with pytest.raises(RunStoppedError, match=r"members have not returned 0\.5 s after cluster\.shutdown"):
        cluster.shutdown(grace_secs=0.5)
    pids = [int((tmp_path / f"pid-{number}").read_text()) for number in range(2)]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "the members' end")


@pytest.mark.all(case="the roles of the original", covered_by="`unit/tensorflowonspark/test_tfcluster_calls`: roles")
def test_roles_are_those_of_the_original(pool: st.Pool, tmp_path: Path) -> None:
    def tell(args: Any, ctx: Any) -> None:
        found = [ctx.executor_id, ctx.job_name, ctx.task_index, ctx.num_workers, sorted(ctx.cluster_spec)]
        Path(args["folder"], f"{ctx.executor_id}.json").write_text(json.dumps(found))
        while len([*Path(args["folder"]).glob("*.json")]) < 3:
            pause(0.02)

    cluster = TFCluster.run(
        pool, tell, {"folder": str(tmp_path)}, 3, 1, master_node="chief", dir=str(tmp_path / "runs")
    )
    assert [(each["executor_id"], each["job_name"], each["task_index"]) for each in cluster.cluster_info] == [
        (0, "ps", 0),
        (1, "chief", 0),
        (2, "worker", 0),
    ]
    cluster.shutdown(grace_secs=30)
    assert [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(3)] == [
        [0, "ps", 0, 2, ["chief", "ps", "worker"]],
        [1, "chief", 0, 2, ["chief", "ps", "worker"]],
        [2, "worker", 0, 2, ["chief", "ps", "worker"]],
    ]


@pytest.mark.all(case="TensorBoard of a cluster", covered_by="`process/test_board`: that of a run")
@pytest.mark.parametrize("own_folder", [False, True])
def test_tensorboard_is_served_while_the_cluster_runs(pool: st.Pool, tmp_path: Path, own_folder: bool) -> None:
    def wait(args: Any, ctx: Any) -> None:
        while not Path(args["folder"], "over").exists():
            pause(0.02)

    options = {"log_dir": str(tmp_path)} if own_folder else {}
    mode = TFCluster.InputMode.TENSORFLOW
    cluster = start(pool, tmp_path, wait, executors=1, input_mode=mode, tensorboard=True, **options)
    url = cluster.tensorboard_url()
    assert url is not None
    address, _, token = url.partition("?token=")
    request = Request(address, headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=30) as page:
        assert b"TensorBoard" in page.read()
    (tmp_path / "over").touch()
    cluster.shutdown(grace_secs=30)
    with pytest.raises(URLError):
        urlopen(request, timeout=30)


# ---- TensorFlowOnSpark's own tests of TFCluster, with our cluster in place of its fixture


@ORIGINAL_TESTS
def test_the_originals_basic_tf(pool: st.Pool, tmp_path: Path) -> None:
    def _map_fun(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        x = tf.constant(args["x"])
        y = tf.constant(args["y"])
        assert tf.add(x, y).numpy() == 3

    cluster = TFCluster.run(pool, _map_fun, {"x": 1, "y": 2}, num_executors=2, num_ps=0, dir=str(tmp_path))
    cluster.shutdown()


def test_the_originals_inputmode_spark(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    def _map_fun(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        tf_feed = ctx.get_data_feed(False)
        while not tf_feed.should_stop():
            batch = tf_feed.next_batch(batch_size=10)
            if len(batch) > 0:
                squares = tf.math.square(batch)
                tf_feed.batch_results(squares.numpy())

    rdd = spark.sparkContext.parallelize([[x] for x in range(1000)], 10)
    cluster = TFCluster.run(pool, _map_fun, {}, num_executors=2, num_ps=0, input_mode=SPARK, dir=str(tmp_path))
    assert cluster.inference(rdd).sum() == sum(x * x for x in range(1000))
    cluster.shutdown()


@ORIGINAL_TESTS
def test_the_originals_inputmode_spark_exception(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    def _map_fun(args: Any, ctx: Any) -> None:
        ctx.get_data_feed(False).next_batch(10)
        raise Exception("FAKE exception during feeding")

    rdd = spark.sparkContext.parallelize([[x] for x in range(1000)], 10)
    cluster = TFCluster.run(pool, _map_fun, {}, num_executors=2, num_ps=0, input_mode=SPARK, dir=str(tmp_path))
    with pytest.raises(Exception, match="FAKE exception during feeding"):
        cluster.inference(rdd, feed_timeout=60).count()
    with pytest.raises(RunFailedError, match="FAKE exception during feeding"):
        cluster.shutdown()


@ORIGINAL_TESTS
def test_the_originals_inputmode_spark_late_exception(spark: SparkSession, pool: st.Pool, tmp_path: Path) -> None:
    def _map_fun(args: Any, ctx: Any) -> None:
        tf_feed = ctx.get_data_feed(False)
        while not tf_feed.should_stop():
            batch = tf_feed.next_batch(10)
            if len(batch) > 0:
                tf_feed.batch_results(batch)
        raise Exception("FAKE exception after feeding")

    rdd = spark.sparkContext.parallelize([[x] for x in range(1000)], 10)
    cluster = TFCluster.run(pool, _map_fun, {}, num_executors=2, num_ps=0, input_mode=SPARK, dir=str(tmp_path))
    assert cluster.inference(rdd).count() == 1000
    with pytest.raises(RunFailedError, match="FAKE exception after feeding"):
        cluster.shutdown(grace_secs=5)


# ---- programs that connect their members by themselves


@pytest.mark.all(case="a strategy of the members of a cluster", covered_by="`training/test_own_strategies`")
def test_the_members_of_a_cluster_make_a_strategy(pool: st.Pool, tmp_path: Path) -> None:
    def main(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)
        Path(args["folder"], f"{ctx.job_name}-{ctx.task_index}").write_text(f"{float(total):g}")

    cluster = start(pool, tmp_path, main, input_mode=TFCluster.InputMode.TENSORFLOW)
    cluster.shutdown(grace_secs=60)
    assert {name: (tmp_path / name).read_text() for name in ("worker-0", "worker-1")} == {
        "worker-0": "2",
        "worker-1": "2",
    }


@pytest.mark.all(case="TensorFlow 1 with a parameter server", covered_by="`training/test_between_graph`")
def test_a_program_of_tensorflow_1_with_a_parameter_server(pool: st.Pool, tmp_path: Path) -> None:
    def main(args: Any, ctx: Any) -> None:
        import tensorflow as tf

        from sparktrain.tensorflowonspark import TFNode

        tf1 = tf.compat.v1
        cluster, server = TFNode.start_cluster_server(ctx)
        if ctx.job_name == "ps":
            server.join()
        tf1.disable_eager_execution()
        with tf1.device(tf1.train.replica_device_setter(cluster=cluster)):
            step = tf1.train.get_or_create_global_step()
            count = tf1.assign_add(step, 1)
        with tf1.train.MonitoredTrainingSession(server.target, is_chief=ctx.task_index == 0) as session:
            while session.run(count) < 20:
                pass
        Path(args["folder"], f"{ctx.job_name}-{ctx.task_index}").touch()

    cluster = TFCluster.run(pool, main, {"folder": str(tmp_path)}, 3, 1, dir=str(tmp_path / "runs"))
    cluster.shutdown(grace_secs=120)
    assert sorted(path.name for path in tmp_path.glob("worker-*")) == ["worker-0", "worker-1"]
