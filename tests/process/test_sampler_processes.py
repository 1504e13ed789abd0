"""Suggestions depend on the seed and the results, and on nothing of a process."""

import os
import subprocess
import sys

from tests.unit.search.test_samplers import NUMBERS, chosen, suggestions


def test_suggestions_are_the_same_in_every_process() -> None:
    code = (
        "from tests.unit.search.test_samplers import MIXED, NUMBERS, chosen, suggestions\n"
        "print([suggestions(chosen(name, NUMBERS), 14) for name in ('random', 'tpe', 'cmaes', 'qmc', 'nsgaii')])\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, timeout=100, capture_output=True, text=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1]
    mine = [suggestions(chosen(name, NUMBERS), 14) for name in ("random", "tpe", "cmaes", "qmc", "nsgaii")]
    assert found[0] == f"{mine}\n"
