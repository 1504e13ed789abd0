"""Scripts for torchrun, started by `python -m sparktrain.torch` as torchrun starts them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN_S = 240.0
SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from steps import scale

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        return float(number ** 2)

def main(how, word):
    dist.init_process_group("gloo")
    total = torch.tensor(float(dist.get_rank() + 1))
    dist.all_reduce(total)
    loader = DataLoader(Squares(), 2, num_workers=1, multiprocessing_context="spawn")
    squares = sum(float(batch.sum()) for batch in loader)
    with open(f"{word}-{dist.get_rank()}.txt", "w") as file:
        file.write(f"{scale(total.item())} {squares} {sys.argv[0]} {os.path.dirname(os.path.abspath(__file__))}")
    if how == "raises":
        raise ValueError("a mistake of the script")
    if how == "exits":
        sys.exit(7)
    dist.destroy_process_group()

if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.exit(0)
"""

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "ddp.py").write_text(SCRIPT)
    (scripts / "steps.py").write_text("def scale(total):\n    return 10 * total\n")
    return tmp_path


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparktrain.torch", "--nproc_per_node=2", "--dir", "runs", "--name", "ddp", *words]
    path = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **path}, capture_output=True, text=True, timeout=RUN_S
    )


def test_a_script_runs_as_after_torchrun(folder: Path) -> None:
    ended = call(folder, "scripts/ddp.py", "ends", "--dir")
    assert ended.returncode == 0, ended.stderr
    for rank in range(2):
        words = (folder / f"--dir-{rank}.txt").read_text().split()
        assert words == ["30.0", "14.0", "scripts/ddp.py", str(folder / "scripts")]


@pytest.mark.parametrize(
    ("how", "words"),
    [("raises", "ValueError: a mistake of the script"), ("exits", "the script has called sys.exit(7)")],
)
def test_a_script_that_fails_fails_the_run_with_its_own_lines(folder: Path, how: str, words: str) -> None:
    ended = call(folder, "scripts/ddp.py", how, "x")
    assert ended.returncode == 3
    assert words in ended.stderr
    assert how == "exits" or f"{Path('scripts', 'ddp.py')}" in ended.stderr


def test_a_module_runs_by_its_name(folder: Path) -> None:
    package = folder / "models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nopen(sys.argv[1], 'w').write(__name__)\n")
    ended = call(folder, "-m", "models", str(folder / "out"))
    assert ended.returncode == 0, ended.stderr
    assert (folder / "out").read_text() == "__main__"
