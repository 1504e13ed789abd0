"""The same code has the same fingerprint in any process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.driver.fingerprints import SOURCE, defined

SHOW = """
import json, sys
from sparktrain.usercode.fingerprint import fingerprint
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target
print(json.dumps(fingerprint(Target.of(train), pack(train))))
"""


def printed(arguments: list[str], hash_seed: int) -> dict[str, str]:
    """The fingerprint of each part, from another process."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_another_process_line_or_file_does_not_change_a_fingerprint(tmp_path: Path) -> None:
    script, moved = tmp_path / "script.py", tmp_path / "moved.py"
    script.write_text(SOURCE + SHOW)
    moved.write_text('"""Trains."""\n\n# More of it.\nUNUSED = 3\n\n\n' + SOURCE + SHOW)
    expected = defined(SOURCE)
    assert printed([str(script)], 0) == expected
    assert printed([str(moved)], 1) == expected
    assert printed(["-c", SOURCE + SHOW], 2) == expected


def test_executing_a_cell_twice_does_not_change_a_fingerprint() -> None:
    cell = f"{SOURCE}\nprint(1)\n{SHOW}"
    lines = ["from IPython.core.interactiveshell import InteractiveShell", "shell = InteractiveShell.instance()"]
    code = "\n".join([*lines, *(f"shell.run_cell({text!r}).raise_error()" for text in ("1", cell, "# x\n" + cell))])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=True)
    first, second = (line for line in done.stdout.decode().splitlines() if line.startswith("{"))
    assert first == second
