"""What of this machine an interpreter takes along, and how it is started elsewhere."""

import os
import subprocess
from pathlib import Path

from sparktrain.driver.packing import interpreter
from sparktrain.driver.packing.interpreter import needed_libraries

LDD = """\
/usr/bin/python3.11:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibpython3.11.so.1.0 => /opt/lib/libpython3.11.so.1.0 (0x00007f)
\tlibm.so.6 => /lib/libm.so.6 (0x00007f)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f)
/usr/lib/python3.11/lib-dynload/_ctypes.so:
\tlibffi.so.8 => /lib/libffi.so.8 (0x00007f)
\tlibc.so.6 => /lib/libc.so.6 (0x00007f)
\tlibstdc++.so.6 => /lib/libstdc++.so.6 (0x00007f)
\tlibgone.so.1 => not found
"""


def test_libraries_that_a_node_may_lack_are_taken_and_the_runtime_of_c_is_not() -> None:
    assert needed_libraries(LDD) == {
        "libpython3.11.so.1.0": Path("/opt/lib/libpython3.11.so.1.0"),
        "libffi.so.8": Path("/lib/libffi.so.8"),
    }


def test_this_python_is_found_without_its_virtual_environment() -> None:
    found = interpreter.base()
    assert os.access(found.program, os.X_OK)
    assert not found.program.is_symlink()
    assert (found.stdlib / "os.py").is_file()
    assert found.site.startswith("lib")


def test_the_launcher_starts_the_program_with_its_libraries_from_any_folder_and_link(tmp_path: Path) -> None:
    home = tmp_path / "a b"
    for folder in ("bin", "libexec"):
        (home / folder).mkdir(parents=True)
    launcher, program = home / "bin" / "python3.11", home / "libexec" / "python3.11"
    launcher.write_text(interpreter._LAUNCHER.format(libraries="libexec", program="python3.11"))
    program.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH|$SPARKTRAIN_PACK_OUTER|$PYTHONHOME|$*"\n')
    for each in (launcher, program):
        each.chmod(0o755)
    (home / "bin" / "python").symlink_to("python3.11")
    (tmp_path / "environment").symlink_to(home)

    def told(*command: str, **env: str) -> str:
        return subprocess.run(
            command, cwd=tmp_path, env={"PYTHONHOME": "/x", **env}, capture_output=True, text=True, check=True
        ).stdout

    there = f"{tmp_path}/environment/libexec"
    assert told("./environment/bin/python", "-c", "a") == f"{there}|||-c a\n"
    assert told("environment/bin/python", LD_LIBRARY_PATH="/native") == f"{there}:/native|/native||\n"
    assert told(str(launcher)) == f"{home}/libexec|||\n"
