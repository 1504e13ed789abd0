"""The contents of a pack of the Python of this process."""

import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.driver.submitted_jobs.env_pack import pack
from sparktrain.driver.submitted_jobs.env_pack.contents import Contents, bytecode


@pytest.fixture(scope="module")
def planned() -> Contents:
    return pack.plan(["msgspec"])


def test_a_pack_has_an_interpreter_its_library_and_its_packages(planned: Contents) -> None:
    names = {entry.name: entry for entry in planned.entries}
    [site] = {name.partition("/sparktrain/")[0] for name in names if name.endswith("/sparktrain/executor/agent.py")}
    assert names["bin/python"].link
    assert any(name.endswith("/os.py") for name in names)
    assert f"{site}/msgspec/__init__.py" in names
    assert any(name.startswith(f"{site}/sparktrain-") and name.endswith("/METADATA") for name in names)
    assert not [name for name in names if "__pycache__" in name or "/pyspark/" in name]


def test_only_programs_are_executable(planned: Contents) -> None:
    programs = sorted(entry.name for entry in planned.entries if entry.executable)
    assert [name.partition("/")[0] for name in programs] == ["bin", "libexec"]


@pytest.mark.all(
    case="two packs of the same Python have the same name",
    covered_by="`hadoop/test_pack`: the second pack uploads nothing",
)
def test_packs_of_the_same_python_have_the_same_name(planned: Contents) -> None:
    assert pack.plan(["msgspec"]).archive == planned.archive


def test_bytecode_is_taken_without_a_look_at_the_time_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("value = 42\n")
    assert bytecode(source) is None
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    found = bytecode(source)
    assert found is not None
    name, content = found
    (tmp_path / name).write_bytes(content)
    source.write_text("value = 0\n")  # what is imported is what was compiled
    code = "import module; print(module.value)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"
