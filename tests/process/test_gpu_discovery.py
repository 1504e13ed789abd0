"""The discovery script gives each executor of a host its own GPUs while the executor lives."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "conf" / "gpu-discovery.sh"
EXECUTOR = 'while read -r wanted; do SPARKTRAIN_GPUS=$wanted "$0"; done'


class Executor:
    """A process that calls the script on request, as the JVM of an executor does."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def discover(self, wanted: int = 1) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{wanted}\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        assert found["name"] == "gpu"
        return list(found["addresses"])


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "SPARKTRAIN_GPU_ADDRESSES": "0 1 2",
        "SPARKTRAIN_GPU_CLAIMS": str(tmp_path / "claims"),
    }


@contextmanager
def executor(env: dict[str, str]) -> Iterator[Executor]:
    command = ["sh", "-c", EXECUTOR, str(SCRIPT)]
    with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Executor(process)


def test_executors_side_by_side_have_different_gpus(env: dict[str, str]) -> None:
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(executor(env)) for _ in range(3))
        assert (first.discover(), second.discover(2)) == (["0"], ["1", "2"])
        assert first.discover() == ["0"], "the same in each call"
        assert third.discover() == [], "Spark refuses an executor with too few"


def test_the_gpus_of_an_ended_executor_are_assigned_again(env: dict[str, str]) -> None:
    with executor(env) as last:
        with executor(env) as first:
            assert first.discover(2) == ["0", "1"]
        assert last.discover(3) == ["0", "1", "2"]


def test_a_new_process_with_the_pid_of_an_ended_executor_holds_no_gpu(env: dict[str, str], tmp_path: Path) -> None:
    with executor(env) as first, executor(env) as second:
        assert first.discover() == ["0"]
        claim = tmp_path / "claims" / "0"
        claim.write_text(f"{claim.read_text().split()[0]} 1\n")
        assert second.discover() == ["0"]


def test_the_script_asks_nvidia_smi_for_the_gpus_of_the_host(env: dict[str, str], tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '4\\n5\\n'\n")
    tool.chmod(0o755)
    asking = {name: value for name, value in env.items() if name != "SPARKTRAIN_GPU_ADDRESSES"}
    with executor({**asking, "PATH": f"{tool.parent}:{env['PATH']}"}) as only:
        assert only.discover(2) == ["4", "5"]
