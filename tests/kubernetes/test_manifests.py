"""Files of conf/kubernetes that no application of these tests uses, by the schemas of a real API server."""

import os
from pathlib import Path

import pytest

from tests.support.daemons import DaemonError
from tests.support.kubernetes import Kubernetes
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]

READY_S = 30.0
FILES = Path(__file__).parents[2] / "conf" / "kubernetes"
MANIFEST = FILES / "spark-application.yaml"
SCHEMA = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktrain" / "spark-operator" / "2.5.0.yaml"
)


@pytest.fixture(scope="module")
def operated(kubernetes: Kubernetes) -> Kubernetes:
    """A cluster that knows applications of the operator; no operator runs."""
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} is not there: run `make kubernetes`")
    kubernetes.kubectl("create", f"--filename={SCHEMA}")  # `apply` would write all of it into an annotation
    wait_until(lambda: is_established(kubernetes), READY_S, "the API server serves applications")
    return kubernetes


def is_established(cluster: Kubernetes) -> bool:
    definition = cluster.api.get(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sparkapplications.sparkoperator.k8s.io"
    )
    conditions = definition.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def dry_run(cluster: Kubernetes, manifest: Path) -> str:
    options = ("--namespace=training", "--dry-run=server", "--validate=strict")
    return cluster.kubectl("apply", *options, f"--filename={manifest}")


def test_the_manifest_has_the_keys_of_the_operator(operated: Kubernetes) -> None:
    assert dry_run(operated, MANIFEST) == "sparkapplication.sparkoperator.k8s.io/training created (server dry run)\n"


@pytest.mark.parametrize(
    ("correct", "wrong"), [("memoryOverhead: 15g", "memoryOverheads: 15g"), ("quantity: 1", "quantity: one")]
)
def test_a_wrong_key_or_value_is_refused(correct: str, wrong: str, operated: Kubernetes, tmp_path: Path) -> None:
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(MANIFEST.read_text().replace(correct, wrong))
    with pytest.raises(DaemonError, match=r"unknown field|must be of type integer"):
        dry_run(operated, manifest)


def test_the_policy_of_the_network_is_one(kubernetes: Kubernetes) -> None:
    shown = dry_run(kubernetes, FILES / "network-policy.yaml")
    assert shown == "networkpolicy.networking.k8s.io/training created (server dry run)\n"
