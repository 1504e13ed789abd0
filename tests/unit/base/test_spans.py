"""Spans are on only in processes that have the variable, and each has its own time alone."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from sparktrain.base.spans import FOLDER_KEY, read_spans, span

PROGRAM = """
import os, time
from sparktrain.base.spans import span

def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

with span("outer"):
    with span("inner"):
        burn(0.06)
    with span("inner"):
        pass
    burn(0.02)
    if os.fork() == 0:
        with span("child"):
            burn(0.01)
        os._exit(0)  # within a span of the process that forked it
    os.wait()
try:
    with span("raises"):
        raise ValueError
except ValueError:
    with span("after"):
        pass
"""


def test_each_span_has_its_own_time_also_in_forked_processes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | {FOLDER_KEY: str(tmp_path)}, check=True)
    spans = read_spans(tmp_path)
    assert Counter(entry.stage for entry in spans) == {"outer": 1, "inner": 2, "child": 1, "raises": 1, "after": 1}
    cpu_ms: Counter[str] = Counter()
    for entry in spans:
        cpu_ms[entry.stage] += entry.cpu_ns / 1e6
        assert entry.wall_ns >= 0
    assert cpu_ms["inner"] >= 60
    assert 20 <= cpu_ms["outer"] < 60  # without the inner spans
    assert 10 <= cpu_ms["child"] < 60
    assert len(list(tmp_path.iterdir())) == 2  # a file for each process


def test_spans_are_off_without_a_folder() -> None:
    assert FOLDER_KEY not in os.environ
    assert span("one") is span("another")
