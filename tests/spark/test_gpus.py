"""GPUs that Spark assigns to two executors at once."""

import os
from pathlib import Path

import pytest

from tests.spark.command import MASTER, finish, start, write_files
from tests.support.nvidia_smi import list_gpus


def gang_of_two_on_one_gpu(folder: Path, *options: str) -> tuple[int, bytes, str]:
    """Run a gang on two executors that a discovery script gives the same GPU, of 16 GB."""
    script = folder / "always-the-first.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["0"]}\'\n')
    script.chmod(0o755)
    conf = {
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    gang = ["--workers", "2", "--backend", "none", "--param", "x=1", *options, "--dir", str(folder / "runs")]
    path = f"{list_gpus(folder, [16384])}:{os.environ['PATH']}"
    return finish(start(folder, "run", f"{write_files(folder)}:train", *gang, "--master", MASTER, *words, PATH=path))


@pytest.mark.all(
    case="two members that were given the same GPU", covered_by="`unit/driver/test_gpu_claims`, `process/test_devices`"
)
def test_a_gang_with_two_members_on_the_same_gpu_is_refused(tmp_path: Path) -> None:
    code, _, stderr = gang_of_two_on_one_gpu(tmp_path, "--gpus", "1")
    assert code == 2, stderr
    assert "have the same GPU, GPU-0 on " in stderr, stderr
    assert "set spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh" in stderr


@pytest.mark.all(
    case="two members of one GPU, with slices of it that fit",
    covered_by="`unit/driver/test_gpu_claims`, `process/test_gpu_memory`",
)
def test_members_share_a_gpu_of_executors_by_slices_that_fit(tmp_path: Path) -> None:
    code, stdout, stderr = gang_of_two_on_one_gpu(tmp_path, "--gpu-memory", "8GiB")
    assert code == 0, stderr
    assert b"succeeded" in stdout + stderr.encode()


@pytest.mark.all(
    case="two members of one GPU, with slices of it that do not fit",
    covered_by="`unit/driver/test_gpu_claims`, `process/test_gpu_memory`",
)
def test_slices_that_do_not_fit_on_the_gpu_of_executors_are_refused(tmp_path: Path) -> None:
    code, _, stderr = gang_of_two_on_one_gpu(tmp_path, "--gpu-memory", "9GiB")
    assert code == 2, stderr
    assert "gpu_memory (9.0 GiB) for each of 2 agents is more than their GPU has, GPU-0 on " in stderr, stderr
