"""Calls without a name in several processes at the same moment get different runs."""

import subprocess
import sys
from pathlib import Path

from tests.unit.driver.test_names import CALLS, SECOND


def test_simultaneous_calls_of_processes_get_different_runs(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from sparktrain.base.clock import SystemClock\n"
        f"SystemClock.stamp = lambda self: {SECOND!r}\n"
        "from tests.unit.driver.test_names import call\n"
        "print(call(Path(sys.argv[1])).definition.spec.name)"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(CALLS)]
    names = {each.communicate(timeout=60)[0].strip() for each in running}
    assert {each.returncode for each in running} == {0}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert len(names) == CALLS
