"""A member and the processes that it starts cannot start a run."""

import subprocess
import sys

import pytest

from tests.process.harness import Bench


async def test_a_call_within_a_trial_is_refused(bench: Bench) -> None:
    def train() -> dict[str, float]:
        import os

        import sparktrain
        from sparktrain.base.nesting import MEMBER_KEY

        script = "import sparktrain; sparktrain.resume('nowhere')"
        stderr = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stderr
        os.environ.pop(MEMBER_KEY)  # a function that cleans its environment is still in a trial
        with pytest.raises(sparktrain.NestedCallError, match="within a trial"):
            sparktrain.resume("nowhere")
        return {"refused": float("NestedCallError" in stderr)}

    trial = await bench.run(train)
    assert trial.metrics == {"refused": 1.0}
