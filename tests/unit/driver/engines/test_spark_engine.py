"""What an engine of Spark reports of its session, without Spark."""

from unittest.mock import Mock

import pytest

from sparktrain.cluster.spark_facts import Facts
from sparktrain.driver.engines.spark_engine import SparkEngine
from sparktrain.errors import SpecError

PODS = "k8s://https://192.0.2.1:6443"


@pytest.mark.parametrize(
    ("master", "connect", "mode", "expected"),
    [
        ("yarn", False, "client", {"spark.submit.deployMode": "client"}),
        ("yarn", False, "cluster", None),
        ("yarn", True, "client", None),
        (PODS, False, "cluster", None),
        (PODS, True, "client", None),
        ("spark://192.0.2.1:7077", False, "client", None),
    ],
)
def test_a_session_of_yarn_in_client_mode_submits_applications_of_its_kind(
    master: str, connect: bool, mode: str, expected: dict[str, str] | None
) -> None:
    assert engine_on(master, mode, connect=connect).application_settings() == expected


def test_a_session_in_pods_that_ends_with_its_process_names_the_ways_that_do_not() -> None:
    engine = engine_on(PODS, "client")
    with pytest.raises(SpecError, match=r"`sparktrain submit --deploy-mode cluster`, .*conf/kubernetes/connect.yaml"):
        engine.application_settings()


def engine_on(master: str, mode: str, *, connect: bool = False) -> SparkEngine:
    session = Mock()
    session.sparkContext.getConf().getAll.return_value = [("spark.submit.deployMode", mode)]
    return SparkEngine(session, Facts(master, {}, cores=1, connect=connect))
