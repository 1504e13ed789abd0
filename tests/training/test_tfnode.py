"""The functions of `TFNode` that need TensorFlow: servers for between-graph replication, SavedModels of sessions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from sparktrain.config.gang_spec import Role
from sparktrain.errors import SpecError
from sparktrain.state.topology import MemberAddress
from sparktrain.tensorflowonspark import TFNode
from sparktrain.training.collectives.barrier import HeldPort
from sparktrain.training.frameworks.tensorflow.strategies.tf_cluster import port_kept


def alone(port: int) -> Any:
    """The context of a cluster of one worker, which serves on `port`."""
    spec = {"worker": [f"127.0.0.1:{port}"]}
    return SimpleNamespace(cluster_spec=spec, job_name="worker", task_index=0, defaultFS="file://", working_dir="/")


def test_a_server_runs_graphs_of_sessions() -> None:
    held = HeldPort("127.0.0.1")
    place = MemberAddress("here", "127.0.0.1", held.number, Role.WORKER)
    with port_kept(place, held.release):
        cluster, server = TFNode.start_cluster_server(alone(held.number))
    assert cluster.num_tasks("worker") == 1
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
        assert session.run(tf.constant(20) + tf.constant(22)) == 42


def test_rdma_is_refused() -> None:
    with pytest.raises(SpecError, match=r"TensorFlow 2 has no grpc\+verbs"):
        TFNode.start_cluster_server(alone(1), 1, True)


def test_a_session_becomes_a_saved_model(tmp_path: Path) -> None:
    """Also a finalized graph, as that of a MonitoredTrainingSession."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        weight = v1.get_variable("weight", initializer=3.0, use_resource=True)
        y = x * weight
        session.run(v1.global_variables_initializer())
        graph.finalize()
        signature = {"inputs": {"x": x}, "outputs": {"y": y}, "method_name": "tensorflow/serving/predict"}
        TFNode.export_saved_model(session, str(tmp_path / "model"), "serve,other", {"serving_default": signature})
    loaded = tf.saved_model.load(str(tmp_path / "model"), tags=["serve", "other"])
    assert loaded.signatures["serving_default"](x=tf.constant([2.0]))["y"].numpy().tolist() == [6.0]
