"""What of this machine an interpreter takes along, and how it is started elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.driver.submitted_jobs.env_pack import interpreter
from sparktrain.driver.submitted_jobs.env_pack.interpreter import needed_libraries
from sparktrain.errors import SpecError

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
    assert found.site.endswith(f"python{sys.version_info.major}.{sys.version_info.minor}/{Path(found.site).name}")
    assert Path(found.site).name in ("site-packages", "dist-packages"), "Debian's own Python has the latter"


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

    def output_of(*command: str, **env: str) -> str:
        return subprocess.run(
            command, cwd=tmp_path, env={"PYTHONHOME": "/x", **env}, capture_output=True, text=True, check=True
        ).stdout

    there = f"{tmp_path}/environment/libexec"
    assert output_of("./environment/bin/python", "-c", "a") == f"{there}|||-c a\n"
    assert output_of("environment/bin/python", LD_LIBRARY_PATH="/native") == f"{there}:/native|/native||\n"
    assert output_of(str(launcher)) == f"{home}/libexec|||\n"


def test_a_python_of_conda_is_left_to_conda_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(SpecError, match="run conda-pack"):
        interpreter.base()


def test_a_program_that_is_missing_or_fails_is_an_error() -> None:
    with pytest.raises(SpecError, match="no-such-program cannot be run, and a pack needs it"):
        interpreter._ask(["no-such-program"])
    with pytest.raises(SpecError, match="sh failed, and a pack needs it: why"):
        interpreter._ask(["sh", "-c", "echo why >&2; exit 1"])


def test_what_nobody_imports_who_trains_stays_behind(tmp_path: Path) -> None:
    kept = ["os.py", "lib-dynload/_ssl.so", "email/parser.py", "unittest/case.py"]
    left = [
        *("test/test_os.py", "site-packages/x.py", "tkinter/ttk.py", "config-3.11-x86_64/libpython.a"),
        *("lib-dynload/_tkinter.so", "lib-dynload/_testcapi.so", "email/__pycache__/parser.pyc"),
    ]
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in interpreter._library(tmp_path)]
    assert found == sorted(kept)
