"""Stages of Spark ML in HDFS, through Spark's own file systems."""

import os
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.ml import KerasModel
from sparktrain.ml.stage_files import PIECE_BYTES
from tests.hadoop.sessions import end_jvm
from tests.support.hadoop import Hdfs
from tests.support.local_spark import spark_session


@pytest.mark.all(
    case="a model of Spark ML is saved in HDFS, loaded, and placed for executors",
    covered_by="`spark/test_ml`: in a directory; `hadoop/test_store`: files in HDFS",
)
def test_a_model_is_saved_overwritten_loaded_and_placed_for_executors(hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    url = f"{hdfs_cluster.url}/ml-stages"
    contents = [os.urandom(PIECE_BYTES + 5), os.urandom(7)]  # two pieces, and one
    end_jvm()
    try:
        with spark_session("local[1]", tmp_path):
            for content in contents:
                file = tmp_path / "model.keras"
                file.write_bytes(content)
                model = KerasModel(file, predictionCol="p", dir=f"{url}/runs")
                model.write().overwrite().save(f"{url}/model")
                loaded = KerasModel.load(f"{url}/model")
                assert loaded._bytes() == content
                assert (loaded.uid, loaded.getPredictionCol()) == (model.uid, "p")
                placed = loaded._reachable()
                assert placed.startswith(f"{url}/runs/.models/")
                assert KerasModel(placed)._bytes() == content
            with pytest.raises(st.MissingFileError, match="is gone"):
                KerasModel(f"{url}/runs/missing.keras").write()
    finally:
        end_jvm()
