"""A model that two members hold in parts by `fully_shard`, beside torchrun: its steps, saves, and bytes of each member.

    .venv-torch/bin/python -m benchmarks.torch_sharded [--steps 100] [--rounds 3] [--width 4730]
    .venv-torch/bin/python -m benchmarks.torch_sharded --kills 10 [--plans hybrid] [--savers memory]

The script is `benchmarks/torch_sharded_script.py`: `python -m sparktrain.torch` starts it without Spark on this host,
and `torchrun` as usual. Steps are those of a model of 32 MiB. Saves are of 1 GB, weights and both slots of Adam, by
`ctx.checkpoint.save` and by `torch.distributed.checkpoint.async_save` to a local folder. Rounds alternate.

With `--kills` the script is `benchmarks/torch_sharded_kill_script.py`: one of four members kills itself in each
generation, and the time counts until the step after the newest one before the kill has ended. The gang resumes from the
store, which has each 20th step, or from memory. The rival is a restart by torchrun from torch's own checkpoints of each
20th step in a local folder. A run has a deadline: one that hangs ends the benchmark.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
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
KILL_SCRIPT = Path(__file__).with_name("torch_sharded_kill_script.py")
KILL_S = 90.0
"""How long a run may take for each kill."""
KILL_TARGETS = {"hybrid": ("dcp", 0.3), "fsdp": ("ctx", 0.5)}
"""By plan: what memory is compared with."""
SAVERS = {"dcp": "torchrun", "ctx": "the store", "memory": "memory"}
RIVAL = "torchrun"
OURS = "python -m sparktrain.torch"
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""By default torchrun of torch 2.15 keeps one store for all restarts: new processes find there the addresses of those
that are gone, and fail or hang in `init_process_group`."""
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


def recoveries(saver: str, plan: str, kills: int, folder: Path) -> tuple[list[float], list[int]]:
    """Of each kill the seconds until training was further than before, and the steps that it repeated."""
    restarts = ["--max-restarts", str(2 * kills)]
    module = COMMANDS[RIVAL if saver == "dcp" else OURS][1]
    words = [str(KILL_SCRIPT), saver, plan, str(STEP_WIDTH // 4), str(kills), str(folder)]
    run_script([*module, *restarts], words, folder, (kills + 1) * KILL_S, members=4, variables=OWN_STORE)
    notes = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    seconds: list[float] = []
    repeated: list[int] = []
    for generation in range(kills):
        killed = float((folder / f"kill-{generation}").read_text())
        newest = max(step for _, step, number in notes if number == generation)
        later = [(time, step) for time, step, number in notes if number > generation]
        seconds.append(min(time for time, step in later if step > newest) - killed)
        repeated.append(newest + 1 - later[0][1])
    return seconds, repeated


def show_kills(kills: int, plans: Sequence[str], savers: Sequence[str]) -> None:
    """Print what kills cost, from memory, from the store, and by torchrun."""
    rows = []
    for plan in plans:
        rival, target = KILL_TARGETS[plan]
        medians: dict[str, float] = {}
        for saver in savers:
            with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
                seconds, repeated = recoveries(saver, plan, kills, Path(folder))
            medians[saver] = median(seconds)
            ratios = [f"{medians[saver] / medians[other]:.2f}" if other in medians else "" for other in ("dcp", "ctx")]
            is_compared = saver == "memory" and rival in medians
            cell = at_most(medians[saver] / medians[rival], target) if is_compared else ""
            steps = f"{sum(repeated)}, {max(repeated)}"
            limits = f"{min(seconds):.1f}-{max(seconds):.1f} s"
            rows.append((plan, SAVERS[saver], f"{medians[saver]:.2f} s", limits, steps, *ratios, cell))
    columns = ("plan", "from", "median", "all", "repeated, most", "of torchrun", "of the store", "target")
    show(f"SIGKILL of one of four members over Gloo, {kills} kills each, torch {torch.__version__}", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=4730)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--plans", nargs="+", choices=KILL_TARGETS, default=[*KILL_TARGETS])
    parser.add_argument("--savers", nargs="+", choices=SAVERS, default=[*SAVERS])
    given = parser.parse_args()
    if given.kills:
        show_kills(given.kills, given.plans, given.savers)
        return
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
