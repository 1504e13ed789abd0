"""Spark's report of a task that could not start becomes what is missing, where, and how to install it."""

import pytest

from sparktrain.cluster.import_failures import Missing, advice, missing_in, package_of

LOST = (
    "Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (node-7 executor 1): "
)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (f"{LOST}ModuleNotFoundError: No module named 'grpc'", Missing("grpc", None, "node-7")),
        ("ModuleNotFoundError: No module named 'sparktrain.executor'", Missing("sparktrain.executor", None, None)),
        (f'{LOST}java.io.IOException: Cannot run program "python9": error=2', Missing(None, "python9", "node-7")),
        (f"{LOST}java.io.IOException: the disk is full", None),
    ],
)
def test_what_is_missing_is_found_in_the_error_of_spark(error: str, found: Missing | None) -> None:
    assert missing_in(error) == found


def test_a_module_is_named_with_its_host_and_the_package_that_brings_it() -> None:
    advised = advice(Missing("grpc", None, "node-7"), lambda module: "grpcio==1.85.1")
    assert advised.startswith("the executor on host node-7 cannot import grpc: ")
    assert "pip install 'grpcio==1.85.1'" in advised
    assert "sparktrain submit --pack auto" in advised


def test_a_python_that_does_not_exist_is_named() -> None:
    advised = advice(Missing(None, "/opt/python", None))
    assert advised.startswith("an executor has no Python at /opt/python: name one of every node")


@pytest.mark.long
def test_the_package_of_a_module_may_have_another_name() -> None:
    assert package_of("yaml.nodes").startswith("PyYAML==")
    assert package_of("no_such_module") == "no_such_module"
