"""What other users of a host can see of a run on YARN, and what outlives it, has none of its secrets."""

import base64
import json
from pathlib import Path

import psutil
import pytest

from sparktrain.store.url import open_store
from tests.hadoop.canaries import found_in, kept_in, noted_in, shown_by, spellings
from tests.hadoop.following import wait_running
from tests.support.hadoop import Yarn, submission

JOB = Path(__file__).with_name("yarn_secrets.py")
TRAINS_S = 80.0

pytestmark = pytest.mark.timeout(480)


@pytest.mark.all(
    case="no secret of a run on YARN can be seen", covered_by="`hadoop/test_kerberos`: no secret of a run can be seen"
)
def test_no_secret_of_a_run_can_be_seen(yarn_cluster: Yarn, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "run").mkdir()
    conf = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.executor.instances": "1",
        "spark.task.maxFailures": "1000",
    }
    folder, directory = tmp_path / "run", f"{yarn_cluster.hdfs.url}{tmp_path}"
    with submission(yarn_cluster, JOB, str(folder), directory, conf=conf) as submitted:
        wait_running(submitted, lambda: (folder / "step").exists(), TRAINS_S, "the member trains")
        secrets = noted_in(folder)
        assert set(secrets) == {"key of agents", "secret of Spark"}
        processes = psutil.Process().children(recursive=True)
        shown = shown_by(processes, secrets)
        (folder / "enough").touch()
        assert submitted.wait(TRAINS_S) == 0, submitted.output

    assert not shown
    assert "spark.authenticate" in dict(json.loads((folder / "conf.json").read_text()))
    assert list((tmp_path / "events").iterdir())
    assert not kept_in(tmp_path, secrets, but_not="/secrets.json$")
    assert submitted.application
    assert submitted.application in yarn_cluster.logs(submitted.application) + submitted.output
    assert not kept_in(yarn_cluster.folder / "container-logs", secrets)
    assert not found_in(submitted.output.encode(), secrets)
    store = open_store(directory)
    assert store.list("e")
    assert not [path for path in store.list("e") if found_in(store.read(path), secrets)]


def test_a_secret_is_found_however_it_is_written(tmp_path: Path) -> None:
    secret = bytes(range(100, 130))
    assert len(spellings(secret)) > 5
    for written in (secret, secret.hex().encode(), json.dumps({"key": secret.hex().upper()}).encode()):
        assert found_in(b"before " + written + b" after", {"it": secret}) == ["it"]
    for before in range(4):
        (tmp_path / "log").write_bytes(base64.b64encode(b"x" * before + secret + b"y"))
        assert kept_in(tmp_path, {"it": secret}) == [f"it: {tmp_path}/log"]
    assert not found_in(secret[:-1], {"it": secret})
