"""The manifest for Kubeflow's Spark operator, against the schema of the operator, by a real API server."""

import os
from pathlib import Path

import pytest

from tests.support.daemons import DaemonError
from tests.support.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]

MANIFEST = Path(__file__).parents[2] / "conf" / "kubernetes" / "spark-application.yaml"
SCHEMA = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktrain" / "spark-operator" / "2.5.0.yaml"
)


@pytest.fixture(scope="module")
def operated(kubernetes: Kubernetes) -> Kubernetes:
    """A cluster that knows applications of the operator; no operator runs."""
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} is not there: run `make kubernetes`")
    kubernetes.kubectl("create", f"--filename={SCHEMA}")  # `apply` would write all of it into an annotation
    kubernetes.kubectl("wait", "--for=condition=Established", "crd/sparkapplications.sparkoperator.k8s.io")
    return kubernetes


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
