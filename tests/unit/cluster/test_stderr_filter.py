"""What reaches people of what a JVM and TensorFlow write."""

import os
import re
import threading

import pytest

from sparktrain.cluster import jvm
from sparktrain.cluster.stderr_filter import OF_TENSORFLOW, pass_on, stderr_without

JVMS = b"""\
WARNING: Using incubator modules: jdk.incubator.vector
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
12:00:01 ERROR SparkContext: Error initializing SparkContext.
WARNING: sun.misc.Unsafe will go
Error: the last line has no end"""
TENSORFLOWS = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795348902.345795   19407 port.cc:153] oneDNN custom operations are on.
To enable the following instructions: AVX2 AVX512F, rebuild TensorFlow
2026-01-02 03:04:05.678901: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795348925.487986   19407 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
E0000 00:00:1795348925.487986   19407 file_system.cc:9] out of disk
WARNING: my own
"""


@pytest.mark.parametrize(("noise", "written", "left"), [(jvm.NOISE, JVMS, 3), (OF_TENSORFLOW, TENSORFLOWS, 5)])
def test_only_what_matters_is_passed_on(noise: re.Pattern[bytes], written: bytes, left: int) -> None:
    reading, writing = os.pipe()
    os.write(writing, written)
    os.close(writing)
    passed: list[bytes] = []
    ended = threading.Event()
    pass_on(reading, noise, passed.append, ended)
    assert b"".join(passed) == b"\n".join(written.split(b"\n")[left:])
    assert ended.is_set()


def test_stderr_is_filtered_for_a_while(capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_without(OF_TENSORFLOW):
        os.write(2, TENSORFLOWS)
    os.write(2, b"I0000 00:00:1 later\n")
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].endswith("out of disk")
    assert lines[1:] == ["WARNING: my own", "I0000 00:00:1 later"]
