"""The processor time of tests, from reports of pytest with what tests/conftest.py adds to them."""

import subprocess
import sys
from collections import Counter

from scripts.cpu_seconds import PROPERTY, seconds_in, table
from tests.support.cpu_time import CpuTime

CASE = '<testcase classname="{}"><properties><property name="{}" value="{}"/></properties></testcase>'


def test_seconds_of_rings_and_files() -> None:
    cases = [("tests.spark.test_run", 2.5), ("tests.unit.state.test_agents.TestAll", 1.25), ("tests.spark.test_run", 1)]
    text = "".join(CASE.format(name, PROPERTY, seconds) for name, seconds in cases)
    before = seconds_in(f'<testsuite>{text}<testcase classname="tests.unit.test_docs"/></testsuite>')
    assert before == {"spark/run": 3.5, "unit/state/agents": 1.25}
    after = Counter({"spark/run": 2.0, "hadoop/runs": 9.0})
    assert table([before, after]) == [f"      3.5      2.0  {name}" for name in ("all", "spark", "spark/run")]


def test_a_child_that_has_ended_counts() -> None:
    time = CpuTime()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True)
    assert time.lap() >= 0.1  # the kernel counts in parts of 10 ms
