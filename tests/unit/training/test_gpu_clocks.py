"""What limits the clocks of GPUs, by the answer of a command in place of nvidia-smi."""

from pathlib import Path

import pytest

from sparktrain.training.host_limits import GpuClocks
from tests.support.processes import wait_until


@pytest.mark.parametrize(
    ("masks", "limited"),
    [("0x0000000000000001", False), ("0x0000000000000002", False), ("0x1\\n0x0000000000000044", True), ("N/A", False)],
)
def test_heat_and_power_limit_a_clock(tmp_path: Path, masks: str, limited: bool) -> None:
    looked = tmp_path / "looked"
    script = f"printf '{masks}'; echo $0 >> {looked}"
    clocks = GpuClocks("GPU-1,GPU-2", ("sh", "-c", script), look_s=0.01)
    clocks.start()
    if masks == "N/A":
        wait_until(looked.exists, 20, "a look")
    else:
        wait_until(lambda: looked.exists() and looked.read_text().count("GPU-1,GPU-2") > 2, 20, "looks")
    assert clocks.limited is limited
    clocks._command = ("false",)
    wait_until(lambda: not clocks.limited, 20, "the end of the looks")


@pytest.mark.parametrize("gpus", ["", "-1"])
def test_a_member_without_gpus_does_not_look(gpus: str) -> None:
    clocks = GpuClocks(gpus, ("no such command",))
    clocks.start()
    assert not clocks._looks
