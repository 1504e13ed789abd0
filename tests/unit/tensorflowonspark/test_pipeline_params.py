"""Params, converters and namespaces of `pipeline`: the tables of the original, and a cluster that records its calls."""

import argparse
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sparktrain import tensorflowonspark
from sparktrain.errors import DataError, FunctionError, SpecError
from sparktrain.tensorflowonspark import paths, pipeline
from sparktrain.tensorflowonspark.pipeline import (
    HasBatchSize,
    HasSteps,
    Namespace,
    TFEstimator,
    TFModel,
    TFParams,
    TFTypeConverters,
)

VALUES = {"string": "foo", "integer": 1, "float": 3.14, "array": [1, 2, 3], "map": {"a": 1, "b": 2}}
ARGV = ["--foo", "1", "--bar", "test"]
ESTIMATOR = {
    "input_mapping": {}, "cluster_size": 1, "num_ps": 0, "driver_ps_nodes": False, "input_mode": 1,
    "master_node": "chief", "protocol": "grpc", "tensorboard": False, "model_dir": None, "export_dir": None,
    "tfrecord_dir": None, "batch_size": 100, "epochs": 1, "readers": 1, "steps": 1000, "grace_secs": 30,
}  # fmt: skip
MODEL = {
    "input_mapping": {}, "output_mapping": {}, "batch_size": 100, "model_dir": None, "export_dir": None,
    "signature_def_key": None, "tag_set": None, "keep_columns": False,
}  # fmt: skip


def train(args: Any, ctx: Any) -> None:
    """Nothing: no member calls it here."""


def defaults(stage: TFParams) -> dict[str, Any]:
    return {each.name: stage.getOrDefault(each) for each in stage.params}


@pytest.mark.parametrize("given", [VALUES, Namespace(VALUES), argparse.Namespace(**VALUES)])
def test_a_namespace_has_what_it_is_made_from(given: Any) -> None:
    made = Namespace(given)
    assert (made.string, made.integer, made.float, made.array, made.map) == tuple(VALUES.values())
    assert "string" in made
    assert "extra" not in made
    assert sorted(made) == sorted(VALUES)
    assert made == Namespace(VALUES) == VALUES
    assert made != Namespace({})
    assert repr(Namespace({"b": 1, "a": "x"})) == "Namespace(a='x', b=1)"


def test_a_list_of_arguments_stays_one() -> None:
    made = Namespace(ARGV)
    assert made.argv == ARGV == list(made)
    assert made == ARGV
    assert repr(made) == str(ARGV)
    assert Namespace({}).argv is None
    with pytest.raises(SpecError, match=r"Unsupported Namespace args: 'argv'.*pass a dict, a list"):
        Namespace("argv")


def test_params_are_merged_into_arguments() -> None:
    class Merged(TFParams, HasBatchSize, HasSteps):
        def __init__(self, args: Namespace) -> None:
            super().__init__()
            self.args = args

    given = Namespace({"a": 1, "b": 2})
    merged = Merged(given).setBatchSize(10).setSteps(100).merge_args_params()
    assert merged == Namespace({"a": 1, "b": 2, "batch_size": 10, "steps": 100})
    assert given == {"a": 1, "b": 2}


def test_names_and_defaults_are_those_of_the_original() -> None:
    assert defaults(TFEstimator(train, {})) == ESTIMATOR
    assert defaults(TFModel({})) == MODEL
    spelled = {"setDriverPSNodes", "setNumPS", "setTFRecordDir", "setGraceSecs", "setMasterNode", "setTensorboard"}
    assert spelled <= set(dir(TFEstimator))
    estimator = TFEstimator(train, {}).setNumPS(2).setTFRecordDir("/t").setDriverPSNodes(True).setMasterNode("master")
    assert estimator.getNumPS() == 2
    assert estimator.getTFRecordDir() == "/t"
    assert estimator.getDriverPSNodes()
    assert estimator.getMasterNode() == "master"
    assert TFModel({}).setSignatureDefKey(None).getSignatureDefKey() is None
    assert all(hasattr(pipeline, name) for name in pipeline.__all__)


def test_wrong_values_are_refused_at_once() -> None:
    assert TFTypeConverters.toDict({"a": "b"}) == {"a": "b"}
    with pytest.raises(TypeError, match="Could not convert 'a' to a dict"):
        TFTypeConverters.toDict("a")
    estimator = TFEstimator(train, {})
    with pytest.raises(TypeError, match="Could not convert"):
        estimator.setInputMapping(["a"])
    with pytest.raises(TypeError, match="epochs"):
        estimator.setEpochs("two")
    with pytest.raises(SpecError, match=r"InputMode\.TENSORFLOW is deprecated: fit\(df\) sends the rows"):
        estimator.setInputMode(0)
    assert estimator.setInputMode(1).getInputMode() == 1
    with pytest.raises(SpecError, match="export_fn is called by no version of TensorFlow 2"):
        TFEstimator(train, {}, export_fn=train)
    with pytest.raises(FunctionError, match=r"train_fn is lambda .*cannot be called with two arguments"):
        TFEstimator(lambda args: None, {})
    with pytest.raises(FunctionError, match="train_fn is a str; pass a function"):
        TFEstimator("train", {})  # type: ignore[arg-type]


class Cluster:
    """Records what an estimator asks of a cluster; `train` raises `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.calls: list[Any] = []

    def run(self, *args: Any, **options: Any) -> "Cluster":
        self.calls.append(("run", args, options))
        return self

    def train(self, rows: Any, epochs: int) -> None:
        self.calls.append(("train", rows, epochs))
        if self.error is not None:
            raise self.error

    def cancel(self, reason: str) -> None:
        self.calls.append(("cancel", reason))

    def shutdown(self, grace_secs: int = 0) -> None:
        self.calls.append(("shutdown", grace_secs))


class Frame:
    """A DataFrame as far as an estimator asks."""

    sparkSession = "session"  # noqa: N815 - PySpark
    columns = ("b", "a", "c")

    def select(self, *names: str) -> Any:
        return names


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made, module = Cluster(), ModuleType("sparktrain.tensorflowonspark.TFCluster")
    monkeypatch.setattr(module, "run", made.run, raising=False)
    monkeypatch.setattr(module, "InputMode", SimpleNamespace(SPARK=1), raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tensorflowonspark, "TFCluster", module, raising=False)
    monkeypatch.setattr(pipeline, "default_fs", lambda session: paths.LOCAL)
    return made


def test_a_fit_runs_feeds_and_ends_a_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    estimator = TFEstimator(train, {"own": 1}, name="mine").setInputMapping({"b": "x", "a": "y"})
    estimator.setClusterSize(3).setNumPS(1).setEpochs(2).setExportDir("out").setModelDir("hdfs:///m").setBatchSize(7)
    model = estimator.setProtocol("rdma").fit(Frame())
    (_, args, options), fed, ended = cluster.calls
    session, function, merged, size, ps, board, mode = args
    assert (session, function, size, ps, board, mode) == ("session", train, 3, 1, False, 1)
    assert (merged.own, merged.batch_size, merged.export_dir) == (1, 7, f"{tmp_path}/out")
    assert options == {"master_node": "chief", "driver_ps_nodes": False, "name": "mine"}
    assert fed == ("train", ("`a`", "`b`"), 2)
    assert ended == ("shutdown", 0)  # as long as members need, unless the program limits it
    assert (model.getExportDir(), model.getModelDir(), model.getBatchSize()) == (f"{tmp_path}/out", "hdfs:///m", 7)
    assert model.args == {"own": 1}
    assert "TFEstimator.setProtocol('rdma') means nothing" in caplog.text


def test_a_list_of_arguments_reaches_the_function_as_it_is(cluster: Cluster) -> None:
    TFEstimator(train, ARGV).setInputMapping({"a": "y"}).setGraceSecs(5).fit(Frame())
    assert cluster.calls[0][1][2] == ARGV
    assert cluster.calls[-1] == ("shutdown", 5)


def test_rows_that_cannot_be_sent_end_the_cluster(cluster: Cluster) -> None:
    cluster.error = DataError("no rows")
    with pytest.raises(DataError, match="no rows"):
        TFEstimator(train, {}).setInputMapping({"a": "y"}).fit(Frame())
    assert cluster.calls[-2:] == [("cancel", "TFEstimator.fit() could not send its rows: no rows"), ("shutdown", 0)]


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({}, SpecError, "input_mapping is empty: call setInputMapping"),
        ({"a": "x", "d": "y"}, DataError, "names the column 'd', which the DataFrame lacks.*its columns are 'b', 'a'"),
    ],
)
def test_columns_are_checked_before_a_cluster_starts(
    cluster: Cluster, mapping: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TFEstimator(train, {}).setInputMapping(mapping).fit(Frame())
    assert cluster.calls == []
