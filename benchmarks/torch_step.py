"""The time of a step of a DDP model of 32 MiB in a gang of two, beside torchrun with the same script.

    .venv-torch/bin/python -m benchmarks.torch_step [--steps 150] [--rounds 3]

The script is `benchmarks/torch_step_script.py`, unchanged: `python -m sparktrain.torch` starts it without Spark on this
machine, and `torchrun` as usual. Each process has one thread for its operations. Rounds alternate.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from benchmarks.machine import at_most, show

TARGET = 1.03
RUN_S = 600.0
END_S = 60.0
"""How long a run may take to end its members."""
SHOWN = 10_000
"""Characters of the output of a run that fails."""
SCRIPT = Path(__file__).with_name("torch_step_script.py")
RIVAL = "torchrun"
OURS = "python -m sparktrain.torch"
COMMANDS = {
    RIVAL: ["torch.distributed.run", "--standalone"],
    OURS: ["sparktrain.torch", "--quiet"],
}


def step_ms(name: str, steps: int, folder: Path) -> float:
    """The median step of one run, in milliseconds."""
    _run(name, steps, folder)
    return float(json.loads((folder / "step.json").read_text()))


def operations_ms(name: str, steps: int, folder: Path) -> dict[str, float]:
    """Milliseconds of a step in each of torch's operations, without those inside of it, of the first member."""
    _run(name, steps, folder, str(folder / "operations.json"))
    return dict(json.loads((folder / "operations.json").read_text()))


def _run(name: str, steps: int, folder: Path, *more: str) -> None:
    result = folder / "step.json"
    result.unlink(missing_ok=True)
    run_script(COMMANDS[name], [str(SCRIPT), str(steps), str(result), *more], folder, RUN_S)


def run_script(
    module: Sequence[str],
    words: Sequence[str],
    folder: Path,
    limit_s: float,
    members: int = 2,
    variables: Mapping[str, str] = {},
) -> None:
    """Run a script with its arguments by `members` of `module`, in `folder`. Raises RuntimeError where it fails, and
    where it has not ended after `limit_s`."""
    command = [sys.executable, "-m", *module, "--nproc-per-node", str(members), *words]
    paths = os.pathsep.join([str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **variables}
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            problem = f"failed ({status})" if (status := process.wait(limit_s)) else ""
        except subprocess.TimeoutExpired:
            problem = f"did not end within {limit_s:g} s"
            process.terminate()  # it ends its members then
            process.wait(END_S)
        output.seek(0)
        if problem:
            raise RuntimeError(f"{' '.join(command)} {problem}: {output.read()[-SHOWN:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        for _ in range(given.rounds):
            for name, measured in times.items():
                measured.append(step_ms(name, given.steps, Path(folder)))
    middle = {name: median(measured) for name, measured in times.items()}
    ratio = middle[OURS] / middle[RIVAL]
    rows = [
        (name, f"{middle[name]:.2f} ms", ", ".join(f"{time:.2f}" for time in times[name]),
         f"{ratio:.3f}" if name == OURS else "", at_most(ratio, TARGET) if name == OURS else "")
        for name in times
    ]  # fmt: skip
    title = f"A step of two members, DDP over Gloo, a model of 32 MiB, {given.rounds} rounds, torch {torch.__version__}"
    show(title, ("", "median step", "all", f"of {RIVAL}", "target"), rows)


if __name__ == "__main__":
    main()
