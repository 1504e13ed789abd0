"""An error of CUDA, which breaks the context of its process, is the result of its trial alone."""

from pathlib import Path

import sparktrain as st
from tests.gpu.on_gpu import ILLEGAL_ADDRESS, illegal_address


def test_an_illegal_address_is_the_result_of_its_trial_and_the_gpu_serves_the_next(tmp_path: Path) -> None:
    space = {"x": [0, 1, 2, 3], "folder": [str(tmp_path)]}
    result = st.sweep(
        illegal_address, space, metric="y", mode="max", spark=st.local(slots=2), dir=str(tmp_path / "runs"),
        progress=False, gpu_memory="2GiB",
    )  # fmt: skip
    broken, *others = result.trials
    assert int((tmp_path / "status").read_text()) == ILLEGAL_ADDRESS
    assert (broken.status, broken.generations) == ("failed", 1)
    assert broken.error is not None
    assert "left TensorFlow as it was" not in broken.error.summary, broken.error.summary
    print(f"CUDA_ERROR_ILLEGAL_ADDRESS is reported as: {broken.error.summary}")
    assert [(trial.status, trial.metrics) for trial in others] == [("succeeded", {"y": 1.0})] * 3
