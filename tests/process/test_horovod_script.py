"""`scripts/build_horovod.sh --nccl` checks what it needs before it downloads or builds anything."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_horovod.sh"
PYTHON = """\
#!/bin/sh
# In place of an environment's Python: its TensorFlow is built for CUDA {cuda}.
if [ "$1" = -c ]; then echo {cuda}; else printf '2.21.0\\n\\ncp311-cp311-linux_x86_64\\n{site}\\n'; fi
"""
LIBRARIES = ("nccl/lib/libnccl.so.2", "cuda_runtime/lib/libcudart.so.12")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The folder of an environment with TensorFlow."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    write_python(folder, "12.5.1")
    return folder


def write_python(environment: Path, cuda: str) -> None:
    python = environment / "bin" / "python"
    python.write_text(PYTHON.format(cuda=cuda, site=environment / "site"))
    python.chmod(0o755)


def add(environment: Path, *libraries: str) -> None:
    for each in libraries:
        path = environment / "site" / "nvidia" / each
        path.parent.mkdir(parents=True)
        path.touch()


def build(environment: Path, *words: str) -> tuple[int, str]:
    env = os.environ | {"XDG_CACHE_HOME": str(environment.parent / "cache")}
    ended = subprocess.run([str(SCRIPT), *words], env=env, capture_output=True, text=True, timeout=100)
    return ended.returncode, ended.stderr.strip()


@pytest.mark.parametrize("words", [["--cuda"], ["--nccl", "--nccl"], ["a", "b"]])
def test_wrong_words_are_refused_with_the_right_ones(environment: Path, words: list[str]) -> None:
    assert build(environment, *words) == (2, "usage: scripts/build_horovod.sh [--nccl] [ENVIRONMENT]")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="--nccl is for x86_64")
@pytest.mark.parametrize("missing", LIBRARIES)
def test_nccl_is_needed_where_the_wheel_is_used(environment: Path, missing: str) -> None:
    add(environment, *(each for each in LIBRARIES if each != missing))
    code, problem = build(environment, "--nccl", str(environment))
    assert code == 2
    assert problem.startswith(f"horovod: --nccl needs {missing} in {environment}, where it is used too: ")
    assert problem.endswith("-m pip install 'tensorflow[and-cuda]'")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="--nccl is for x86_64")
@pytest.mark.parametrize("cuda", ["none", "13.0"])
def test_tensorflow_must_be_built_for_the_cuda_of_the_wheel(environment: Path, cuda: str) -> None:
    write_python(environment, cuda)
    add(environment, *LIBRARIES)
    code, problem = build(environment, "--nccl", str(environment))
    assert code == 2
    assert f"--nccl builds for CUDA 12, and the TensorFlow of {environment} is built for CUDA: {cuda}" in problem
