"""A model that two members hold in parts by `fully_shard`, beside torchrun: its steps, saves, and bytes of each member.

    .venv-torch/bin/python -m benchmarks.torch_sharded [--steps 100] [--rounds 3] [--width 4730]

The script is `benchmarks/torch_sharded_script.py`: `python -m sparktrain.torch` starts it without Spark on this host,
and `torchrun` as usual. Steps are those of a model of 32 MiB. Saves are of 1 GB, weights and both slots of Adam, by
`ctx.checkpoint.save` and by `torch.distributed.checkpoint.async_save` to a local folder. Rounds alternate.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from benchmarks.machine import at_most, show
from benchmarks.torch_step import run_script

STEP_TARGET = 1.03
BLOCKED_TARGET = 1.0
RUN_S = 900.0
STEP_WIDTH = 1448
"""Four matrices of this width have 32 MiB."""
SAVES = 4
"""In a run; the first one takes new memory, and does not count."""
SCRIPT = Path(__file__).with_name("torch_sharded_script.py")
RIVAL = "torchrun"
OURS = "python -m sparktrain.torch"
COMMANDS = {
    RIVAL: ("dcp", ["torch.distributed.run", "--standalone"]),
    OURS: ("ctx", ["sparktrain.torch", "--quiet"]),
}


def measured(name: str, width: int, steps: int, saves: int, folder: Path) -> dict:
    """What one run of the script has measured."""
    saver, module = COMMANDS[name]
    run_script(module, [str(SCRIPT), saver, *map(str, (width, steps, saves)), str(folder)], folder, RUN_S)
    return dict(json.loads((folder / "measured.json").read_text()))


def shares(folder: Path) -> list[float]:
    """What part of the bytes of tensors each member has written, of the newest checkpoint of a run."""
    sizes: dict[str, int] = defaultdict(int)
    paths = sorted(folder.rglob("data/*.safetensors"))
    newest = paths[-1].name.partition("-")[0]
    for path in paths:
        if path.name.startswith(newest) and (member := re.search(r"part-(\d+)-", path.name)):
            sizes[member[1]] += path.stat().st_size
    return [size / sum(sizes.values()) for _, size in sorted(sizes.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=4730)
    given = parser.parse_args()
    steps: dict[str, list[float]] = {name: [] for name in COMMANDS}
    blocked: dict[str, list[float]] = {name: [] for name in COMMANDS}
    parts: list[float] = []
    for _ in range(given.rounds):
        for name in COMMANDS:
            with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
                steps[name].append(measured(name, STEP_WIDTH, given.steps, 0, Path(folder))["step_ms"])
            with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
                blocked[name] += measured(name, given.width, 2, SAVES, Path(folder))["blocked_s"]
                parts = shares(Path(folder)) if name == OURS else parts
    rows = [
        *_rows("a step", {name: f"{median(times):.2f} ms" for name, times in steps.items()}, steps, STEP_TARGET),
        *_rows("a save blocks", {name: f"{median(s):.3f} s" for name, s in blocked.items()}, blocked, BLOCKED_TARGET),
        ("bytes of each member", OURS, ", ".join(f"{part:.3f}" for part in parts), "", "1/2"),
    ]
    gigabytes = 3 * 4 * 4 * given.width**2 / 1e9
    title = (
        f"FSDP2 of two members over Gloo, saves of {gigabytes:.2f} GB, {given.rounds} rounds, torch {torch.__version__}"
    )
    show(title, ("", "", "median", f"of {RIVAL}", "target"), rows)


def _rows(what: str, shown: dict, values: dict, target: float) -> list[tuple]:
    ratio = median(values[OURS]) / median(values[RIVAL])
    return [
        (
            what,
            name,
            shown[name],
            f"{ratio:.3f}" if name == OURS else "",
            at_most(ratio, target) if name == OURS else "",
        )
        for name in values
    ]


if __name__ == "__main__":
    main()
