"""Processes that write the cache of imports at the same time."""

import subprocess
import sys
from pathlib import Path

from sparktrain.usercode import import_cache


def test_processes_that_write_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    """Each result is one of theirs; what the one that was late has is added by the next that lacks it."""
    file = tmp_path / "c.imports"
    program = (
        "import sys; from pathlib import Path; from sparktrain.usercode.import_cache import ImportCache\n"
        "for number in range(20):\n"
        "    cache = ImportCache(Path(sys.argv[1]))\n"
        "    cache.imports_of(f'import m{sys.argv[2]}_{number}\\n#'.encode() + b'-' * 100_000)\n"
        "    cache.save()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(file), str(each)]) for each in range(3)]
    while any(each.poll() is None for each in running):
        assert not file.exists() or import_cache._load(file), "a reader sees a part"
    assert [each.returncode for each in running] == [0, 0, 0]
    assert len(import_cache._load(file)) >= 20
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
