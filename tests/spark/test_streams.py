"""Spark jobs that feed a member: uneven partitions, Spark's own retries, Python objects."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.cluster.dataframes.feeder import FEED_SCHEMA, feed_task
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedTicket
from tests.support.feeds import FedMember, closing_all
from tests.support.processes import wait_until

QUICK: dict[str, Any] = {"workers": 1, "backend": "none", "preload": []}
SIZES = [10, 0, 500, 1, 30_000, 999, 1000, 2]
"""Rows of each partition."""


@pytest.fixture
def member() -> Iterator[FedMember]:
    with closing_all() as started:
        made = FedMember(issue("spark"))
        started.append(made)
        made.ask("start", "train", 1)
        yield made


@pytest.fixture(scope="class")
def pool(spark: SparkSession) -> Iterator[st.Pool]:
    """One warm agent, for the tests of a class: others need its slot."""
    with st.pool(spark, agents=1, preload=[]) as pool:
        yield pool


def uneven(spark: SparkSession) -> DataFrame:
    """Partitions of `SIZES`, with ids that count over all."""
    sizes = SIZES

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                first = sum(sizes[:number])
                yield pa.RecordBatch.from_pydict({"id": pa.array(range(first, first + sizes[number]), pa.int64())})

    return spark.range(0, len(sizes), 1, len(sizes)).mapInArrow(rows, "id long")


def failing_once(batches: Iterator[pa.RecordBatch], ticket: FeedTicket, marker: str) -> Iterator[pa.RecordBatch]:
    """As `feed_task`; the first attempt of partition 4 fails in the middle of it."""
    context = TaskContext.get()
    assert context is not None

    def until_it_fails() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1 and context.partitionId() == 4 and context.attemptNumber() == 0:
                Path(marker).touch()
                raise OSError("the disk of this executor is gone")
            yield batch

    yield from feed_task(until_it_fails(), ticket)


def test_a_table_with_uneven_partitions_and_a_failing_task_arrives_once(
    spark: SparkSession, member: FedMember, tmp_path: Path
) -> None:
    member.send("take all", "train")
    task = partial(failing_once, ticket=member.ticket(), marker=str(tmp_path / "failed"))
    fed = uneven(spark).mapInArrow(task, FEED_SCHEMA).collect()
    assert (tmp_path / "failed").exists()
    assert sorted((row.partition, row.rows) for row in fed) == list(enumerate(SIZES))
    assert not any(row.enough for row in fed)
    assert member.ask("end", "train", 1, "") == [[0, sum(SIZES) - 1]]


class TestOnOnePool:
    """Runs that one warm agent trains: the other slot of the session is for feeders."""

    def test_a_run_reads_a_dataframe_twice_while_spark_computes_it(
        self, spark: SparkSession, pool: st.Pool, runs: Path
    ) -> None:
        def train(ctx: Any) -> dict[str, float]:
            data = ctx.stream("train")
            ids = [[int(i) for batch in data.iter_batches(batch_size=100) for i in batch["id"]] for _ in range(2)]
            return {
                "rows": len(ids[0]),
                "different": len(set(ids[0])),
                "again": float(sorted(ids[0]) == sorted(ids[1])),
            }

        source = uneven(spark).filter("id < 30500")
        result = pool.run(train, data={"train": st.data.stream(source)}, dir=str(runs), name="twice", **QUICK)
        assert result.metrics == {"rows": 30_500, "different": 30_500, "again": 1}

    def test_a_run_reads_python_objects_of_an_rdd_and_stops_early(
        self, spark: SparkSession, pool: st.Pool, runs: Path
    ) -> None:
        def train(ctx: Any) -> dict[str, float]:
            data = ctx.stream("train")
            first = data.next_batch(3)
            data.terminate()
            rest = []
            while not data.should_stop():
                rest += data.next_batch(1000)
            return {"first": len(first), "value": first[2]["value"], "rest": len(rest)}

        rdd = spark.sparkContext.range(0, 200_000, 1, 4).map(lambda i: {"value": 2 * i})
        result = pool.run(train, data={"train": st.data.stream(rdd)}, dir=str(runs), name="objects", **QUICK)
        assert result.metrics == {"first": 3, "value": 4, "rest": 0}

    def test_a_function_that_returns_early_ends_the_feeding_job_well(
        self, spark: SparkSession, pool: st.Pool, runs: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def train(ctx: Any) -> int:
            return len(next(ctx.stream("train").iter_batches(batch_size=7))["id"])

        source = st.data.stream(spark.range(0, 10**7, 1, 2))
        with caplog.at_level("WARNING", "sparktrain"):
            result = pool.run(train, data={"train": source}, dir=str(runs), name="early", **QUICK)
        assert result.metrics == {"result": 7}
        assert "has failed" not in caplog.text

    def test_a_killed_member_gets_the_epoch_from_its_start(
        self, spark: SparkSession, pool: st.Pool, runs: Path
    ) -> None:
        def train(ctx: Any) -> dict[str, float]:
            batches = ctx.stream("train").iter_batches(batch_size=100)
            rows = [int(each) for each in next(batches)["id"]]
            if ctx.generation == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            rows += [int(each) for batch in batches for each in batch["id"]]
            return {"rows": len(rows), "different": len(set(rows)), "generation": ctx.generation}

        source = st.data.stream(spark.range(0, 200_000, 1, 2))
        result = pool.run(train, data={"train": source}, dir=str(runs), name="killed", **QUICK)
        assert result.metrics == {"rows": 200_000, "different": 200_000, "generation": 2}

    def test_a_column_with_nulls_ends_the_run_with_its_name(
        self, spark: SparkSession, pool: st.Pool, runs: Path
    ) -> None:
        def train(ctx: Any) -> float:
            return float(sum(len(batch["id"]) for batch in ctx.stream("train").iter_batches(batch_size=1)))

        source = spark.range(10).selectExpr("if(id < 9, id, null) AS id")
        with pytest.raises(st.RunFailedError, match="'id' has 1 null: a tensor has no nulls"):
            pool.run(train, data={"train": st.data.stream(source)}, dir=str(runs), name="nulls", **QUICK)

    def test_an_exception_while_feeders_wait_ends_their_job(
        self, spark: SparkSession, pool: st.Pool, runs: Path
    ) -> None:
        def train(ctx: Any) -> None:
            ctx.stream("train").next_batch(3)
            raise ValueError("the loss is NaN")

        source = st.data.stream(spark.range(0, 10**7, 1, 2))
        jobs = spark.sparkContext.statusTracker()
        [of_the_pool] = jobs.getActiveJobsIds()
        with pytest.raises(st.RunFailedError, match="the loss is NaN"):
            pool.run(train, data={"train": source}, dir=str(runs), name="raises", **QUICK)
        wait_until(lambda: jobs.getActiveJobsIds() == [of_the_pool], 30, "no job of feeders is left")

    def test_a_stream_that_nobody_reads_costs_nothing(self, spark: SparkSession, pool: st.Pool, runs: Path) -> None:
        def train(ctx: Any) -> float:
            return float(len(ctx.stream("train").columns))

        data = {"train": st.data.stream(spark.range(3))}
        result = pool.run(train, data=data, dir=str(runs), name="unread", **QUICK)
        assert result.metrics == {"result": 1}

    def test_micro_batches_of_structured_streaming_feed_a_run(
        self, spark: SparkSession, pool: st.Pool, runs: Path, tmp_path: Path
    ) -> None:
        def train(ctx: Any) -> dict[str, float]:
            data = ctx.stream("train")
            rows = data.next_batch(1500)
            data.terminate()
            return {"rows": len(rows), "different": len(set(rows))}

        spark.range(0, 2000, 1, 4).write.parquet(str(tmp_path / "events"))
        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "events"))
        result = pool.run(train, data={"train": st.data.stream(stream)}, dir=str(runs), name="events", **QUICK)
        assert result.metrics == {"rows": 1500, "different": 1500}


def test_a_stream_without_a_slot_for_feeders_is_refused(spark: SparkSession, runs: Path) -> None:
    stream = st.data.stream(spark.range(3))
    with pytest.raises(st.ResourceError, match="the 2 agents, which hold all 2 slots of this session: give the"):
        st.run(lambda: None, data={"train": stream}, dir=str(runs), **{**QUICK, "workers": 2})
    assert not runs.exists()


def test_another_call_leaves_the_slot_of_feeders_free(spark: SparkSession, runs: Path) -> None:
    """Both would wait for it until the end of the other one."""

    def train(ctx: Any) -> float:
        return float(len(ctx.stream("train").next_batch(3)))

    stream, refusal = st.data.stream(spark.range(3)), "is wanted, and other calls or pools hold 2 of the 2 slots"
    with st.pool(spark, agents=1, preload=[]), pytest.raises(st.PoolError, match=refusal):
        st.run(train, data={"train": stream}, dir=str(runs), name="late", **QUICK)


def test_streams_are_read_side_by_side(spark: SparkSession, runs: Path) -> None:
    """Both are far larger than what a member holds of them, so that each keeps the slots that it has."""

    def train(ctx: Any) -> dict[str, float]:
        found: dict[str, set[int]] = {"one": set(), "two": set()}
        streams = {name: ctx.stream(name).iter_batches(batch_size=1000) for name in found}
        for batches in zip(*streams.values(), strict=True):
            for seen, batch in zip(found.values(), batches, strict=True):
                seen.update(batch["id"].tolist())
        return {name: len(seen) for name, seen in found.items()}

    data = {name: st.data.stream(spark.range(0, 200_000, 1, 4)) for name in ("one", "two")}
    result = st.run(train, data=data, dir=str(runs), name="both", spark=st.local(1), **QUICK)
    assert result.metrics == {"one": 200_000, "two": 200_000}


@pytest.mark.all(case="two queries of Structured Streaming feed one member", covered_by="two DataFrames; one query")
def test_two_queries_of_structured_streaming_feed_side_by_side(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    def train(ctx: Any) -> dict[str, float]:
        streams = {name: ctx.stream(name) for name in ("one", "two")}
        rows: dict[str, list[Any]] = {name: [] for name in streams}
        for _ in range(3):
            for name, each in streams.items():
                rows[name] += each.next_batch(500)
        for each in streams.values():
            each.terminate()
        return {name: len(set(each)) for name, each in rows.items()}

    spark.range(0, 2000, 1, 4).write.parquet(str(tmp_path / "events"))
    reader = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    data = {name: st.data.stream(reader.parquet(str(tmp_path / "events"))) for name in ("one", "two")}
    result = st.run(train, data=data, dir=str(runs), name="queries", spark=st.local(1), **QUICK)
    assert result.metrics == {"one": 1500, "two": 1500}


def test_streams_that_would_wait_for_each_others_slots_are_refused(spark: SparkSession, runs: Path) -> None:
    data = {name: st.data.stream(spark.range(3)) for name in ("one", "two")}
    with pytest.raises(st.ResourceError, match="at least 2 free slots beside the 1 agent, which holds 1 of the 2"):
        st.run(lambda: None, data=data, dir=str(runs), **QUICK)
    assert not runs.exists()


@pytest.mark.all(
    case="the executor of a feeder is killed", covered_by="`process/test_streams`: a killed feeder; a task that fails"
)
def test_rows_come_once_though_the_executor_of_a_feeder_is_killed(spark: SparkSession, runs: Path) -> None:
    def train(ctx: Any) -> dict[str, float]:
        ids = [int(each) for batch in ctx.stream("train").iter_batches(batch_size=100) for each in batch["id"]]
        return {"rows": len(ids), "different": len(set(ids))}

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 5 and context.partitionId() == 1 and context.attemptNumber() == 0:
                jvm = psutil.Process().parent().parent()  # of the daemon of Python workers
                assert "java" in jvm.name()
                jvm.kill()
            yield batch

    source = spark.range(0, 200_000, 1, 2).mapInArrow(rows, "id long")
    result = st.run(train, data={"train": st.data.stream(source)}, dir=str(runs), name="executor", **QUICK)
    assert result.metrics == {"rows": 200_000, "different": 200_000}


@pytest.mark.all(
    case="another run continues at the checkpoint of a streaming query",
    covered_by="`unit/driver/feeds/test_stream_jobs`: the folder of each trial; micro-batches without a checkpoint",
)
def test_a_checkpoint_lets_another_run_continue_after_the_acknowledged_micro_batches(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    """The first run has all 500 rows of the first micro-batch, and some of the next one; 8 wait in its queue."""

    def train(ctx: Any) -> dict[str, float]:
        data = ctx.stream("train")
        rows = [row[0] for row in data.next_batch(600)]
        data.terminate()
        return {"first": rows[0] // 500, "different": len(set(rows))}

    spark.range(0, 10_000, 1, 20).write.parquet(str(tmp_path / "events"))
    events = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "events"))
    stream = st.data.stream(events, checkpoint=str(tmp_path / "kept"))
    seen = [st.run(train, data={"train": stream}, dir=str(runs), name=name, **QUICK).metrics for name in ("one", "two")]
    assert [each["different"] for each in seen] == [600, 600]
    assert seen[0]["first"] != seen[1]["first"]


@pytest.mark.all(
    case="a gang fits a model on a stream, with shares of 10:1",
    covered_by="`unit/training/data/test_feed_reader`: all members stop with the first that lacks a "
    "step; the other streams of the file",
)
def test_a_gang_fits_a_model_on_a_stream_with_equal_steps(spark: SparkSession, runs: Path) -> None:
    """The partitions of one member have ten times the rows of the other's."""

    def train(ctx: Any) -> dict[str, float]:
        import keras

        class Batches(keras.callbacks.Callback):
            count = 0

            def on_train_batch_end(self, batch: int, logs: object = None) -> None:
                self.count += 1

        batches = Batches()
        data = ctx.stream("train").to_tf(batch_size=50, feature_columns=["a", "b"], label_columns="y", stack=True)
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse")
        history = model.fit(data, epochs=2, verbose=0, callbacks=[*ctx.keras_callbacks(checkpoint_every=None), batches])
        steps = float(batches.count)
        return {"steps": steps, "spread": float(ctx.allgather(steps).std()), "loss": history.history["loss"][-1]}

    sizes = [2000, 200]

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                values = pa.array([i / 1000 for i in range(sizes[number])])
                yield pa.RecordBatch.from_pydict({"a": values, "b": values, "y": values})

    source = spark.range(0, 2, 1, 2).mapInArrow(rows, "a double, b double, y double")
    options: dict[str, Any] = {"workers": 2, "backend": "tensorflow", "spark": st.local(2)}
    result = st.run(train, data={"train": st.data.stream(source)}, dir=str(runs), name="gang", **options)
    assert (result.metrics["steps"], result.metrics["spread"]) == (8, 0), "200 rows of the smaller share, twice"


@pytest.mark.all(
    case="a fit that waits for rows for longer than `hang_timeout`",
    covered_by="`unit/state/test_hangs`: the deadlines; `process/test_open_streams`: what the member sends",
)
def test_a_fit_that_waits_for_rows_for_longer_than_hang_timeout_does_not_hang(spark: SparkSession, runs: Path) -> None:
    """One member waits for its feeder, and the other one for that member. Without that, a step takes milliseconds."""

    def train(ctx: Any) -> dict[str, float]:
        import keras

        data = ctx.stream("train").to_tf(batch_size=5, feature_columns=["x"], label_columns="x", stack=True)
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse")
        model.fit(data, verbose=0, callbacks=ctx.keras_callbacks(checkpoint_every=None))
        return {"generation": ctx.generation}

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"x": pa.array([1.0] * 5000)})
                if number == 0:
                    pause(10.0)  # a source that computes for long
                yield pa.RecordBatch.from_pydict({"x": pa.array([1.0] * 5000)})

    source = spark.range(0, 2, 1, 2).mapInArrow(rows, "x double")
    options: dict[str, Any] = {"workers": 2, "backend": "tensorflow", "spark": st.local(2), "hang_timeout": 3}
    result = st.run(train, data={"train": st.data.stream(source)}, dir=str(runs), name="pause", **options)
    assert result.metrics == {"generation": 1}
