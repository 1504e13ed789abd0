"""The memory of a process that is forked: its small objects lie together, and a fork copies few pages."""

import subprocess
import sys

import pytest

MIB = 2**20


def test_a_collection_after_a_fork_visits_nothing_that_was_there_before() -> None:
    program = "from sparktrain.training import forkable; import gc; forkable.arrange(); print(len(gc.get_objects()))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 100


def _run(program: str) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(word) for word in ran.stdout.split()]


@pytest.mark.parametrize(("module", "together"), [("tensorflow", True), ("numpy", False)])
def test_the_small_objects_of_an_import_lie_together_despite_the_libraries_that_it_maps(
    module: str, together: bool
) -> None:
    program = f"""
import mmap
from sparktrain.training import forkable

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

before = resident()
forkable.reserve([{module!r}])
reserved = resident() - before
objects, libraries = [], []
for _ in range(80):
    libraries.append(mmap.mmap(-1, 3 * 2**20))
    objects += [(number,) for number in range(10_000)]
print(reserved, resident() - before, len({{id(each) // 2**21 for each in objects}}))
"""
    reserved, total, pages = _run(program)
    assert reserved >= 112 * MIB if together else reserved < MIB
    assert total < reserved + 32 * MIB if together else total > 60 * MIB, "the objects use what was reserved"
    assert (pages < 60) == together, "huge pages that hold objects"


@pytest.mark.parametrize(
    "before", ["sys.modules['tensorflow'] = sys", "sys.path[:] = []"], ids=["imported already", "not installed"]
)
def test_nothing_is_reserved_for_an_import_that_will_not_happen(before: str) -> None:
    program = f"""
import sys
from sparktrain.training import forkable
{before}
forkable.reserve(["tensorflow"])
print(len(forkable._pins))
"""
    assert _run(program) == [0]


def test_a_process_that_rehearsed_copies_few_pages_when_it_is_assigned() -> None:
    program = """
import os, resource
import numpy
from sparktrain.training import member, process_setup

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for rehearsed in (False, True):
    if (child := os.fork()) == 0:
        if rehearsed:
            member.rehearse()
        before = faults()
        process_setup.seed(7)
        print(faults() - before, int(numpy.random.randint(2**31)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    first, drawn, later, drawn_later = _run(program)
    assert later * 4 < first
    assert drawn == drawn_later
