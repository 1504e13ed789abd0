"""A member, and each process that it starts, can begin no run of its own."""

import subprocess
import sys

import pytest

from tests.process.harness import Bench


async def test_a_call_within_a_trial_is_refused(bench: Bench) -> None:
    def train() -> dict[str, float]:
        import os

        import sparktrain
        from sparktrain.nesting import MEMBER_KEY

        script = "import sparktrain; sparktrain.resume('nowhere')"
        told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stderr
        os.environ.pop(MEMBER_KEY)  # a function that cleans its environment is in a trial all the same
        with pytest.raises(sparktrain.NestedCallError, match="within a trial"):
            sparktrain.resume("nowhere")
        return {"refused": float("NestedCallError" in told)}

    trial = await bench.run(train)
    assert trial.metrics == {"refused": 1.0}
