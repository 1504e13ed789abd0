"""Whether two trees decide the same: plays histories of rings, hosts and drains, and compares all that follows.

`python -m tests.histories.decisions COUNT FILE` notes a digest of the commands and records of each history in FILE;
where that exists, such as from another tree, it prints how many of them differ, and the first ones. `--show NUMBER`
prints those of one history, for a diff. With PYTHONHASHSEED=0 the digests of two processes are alike.
"""

import argparse
import sys
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sparktrain.state.machine import Machine
from tests.histories import ring_model, test_draining, test_healing_rings, test_spreading

MODULES = (test_healing_rings, test_spreading, test_draining)
CHECKED = (ring_model.RingModel, test_spreading.History, test_draining.History)
PLAYS = (
    test_healing_rings.play,
    lambda seed: test_spreading.History(seed).play(),
    lambda seed: test_draining.History(seed).play(),
)


def decisions(number: int) -> list[str]:
    """What the machine has returned in history `number`, sorted within each event; the history checks nothing."""
    lines: list[str] = []
    handle = Machine.handle

    def record(machine: Machine, event: Any) -> Any:
        commands = handle(machine, event)
        lines.extend(sorted(map(repr, commands)))
        return commands

    with ExitStack() as stack:
        checks = [(module, name) for module in MODULES for name in vars(module) if name.startswith("check_")]
        for owner, name in [*checks, *((model, "check") for model in CHECKED)]:
            stack.enter_context(patch.object(owner, name, lambda *_: None))
        stack.enter_context(patch.object(Machine, "handle", record))
        # Many more of them than their own tests play: some break what these assert in between.
        with suppress(AssertionError):
            PLAYS[number % len(PLAYS)](number)
    return lines


def main() -> int:
    """1 where histories differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--show", type=int)
    options = parser.parse_args()
    if options.show is not None:
        print(*decisions(options.show), sep="\n")
        return 0
    digests = (
        blake2b("\n".join(decisions(number)).encode(), digest_size=8).hexdigest() for number in range(options.count)
    )
    if not options.file.exists():
        with options.file.open("w", buffering=1) as file:
            file.writelines(f"{digest}\n" for digest in digests)
        return 0
    expected = options.file.read_text().split()[: options.count]
    differing = [number for number, pair in enumerate(zip(expected, digests, strict=False)) if len(set(pair)) > 1]
    print(f"{len(expected)} histories, {len(differing)} differ: {differing[:9]}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
