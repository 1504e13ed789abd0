"""GPUs that Spark assigns to two executors at once."""

from pathlib import Path

import pytest

from tests.spark.command import MASTER, finish, start, write_files


@pytest.mark.all
def test_a_gang_with_two_members_on_the_same_gpu_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "always-the-first.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["0"]}\'\n')
    script.chmod(0o755)
    conf = {
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    gang = ["--workers", "2", "--backend", "none", "--param", "x=1", "--gpus", "1", "--dir", str(tmp_path / "runs")]
    code, _, stderr = finish(
        start(tmp_path, "run", f"{write_files(tmp_path)}:train", *gang, "--master", MASTER, *words)
    )
    assert code == 2, stderr
    assert "have the same GPU, 0 on " in stderr, stderr
    assert "set spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh" in stderr
