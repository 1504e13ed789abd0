"""Hadoop's jars and what is compiled against them: what the cache has is whole, or it is not there."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.daemons import DaemonError
from tests.support.hadoop import java

pytestmark = pytest.mark.rig

SCRIPT = Path(__file__).parents[2] / "scripts/fetch_hadoop.sh"

MAVEN = """#!/usr/bin/env bash
for argument; do [[ $argument != -DoutputDirectory=* ]] || folder=${argument#*=}; done
mkdir "$folder"
touch "$folder/first.jar"
echo "half way"
%s
touch "$folder/last.jar"
"""


class Cache:
    """An empty cache, and a Maven that does what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.all = folder / "cache" / "sparktrain" / "hadoop"
        self._tools = folder / "tools"
        self._tools.mkdir()
        self._env = os.environ | {
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PATH": f"{self._tools}:{os.environ['PATH']}",
        }

    def fetch(self, half_way: str) -> "subprocess.CompletedProcess[str]":
        """Run the script to its end, with a Maven that runs the command `half_way` through."""
        maven = self._tools / "mvn"
        maven.write_text(MAVEN % half_way)
        maven.chmod(0o755)
        return subprocess.run([SCRIPT], env=self._env, capture_output=True, text=True, timeout=60, check=False)

    def left(self) -> list[str]:
        return sorted(path.relative_to(self.all).as_posix() for path in self.all.rglob("*") if path.name != ".lock")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Cache(tmp_path)


def test_jars_are_where_daemons_look_for_them_and_are_fetched_once(cache: Cache) -> None:
    assert cache.fetch("true").returncode == 0
    assert sorted(path.name for path in java.jars().iterdir()) == ["first.jar", "last.jar"]

    again = cache.fetch("exit 1")
    assert (again.returncode, again.stdout) == (0, "")


def test_an_unfinished_fetch_leaves_nothing_and_prints_why(cache: Cache) -> None:
    failed = cache.fetch("exit 1")

    assert failed.returncode == 1
    assert failed.stderr == "half way\nhadoop: fetch failed: the last lines of its output are above\n"
    assert cache.left() == []


def test_what_a_killed_run_left_is_not_taken_for_whole(cache: Cache) -> None:
    killed = cache.fetch("kill -9 $PPID")
    assert killed.returncode == -9
    with pytest.raises(java.JarsMissingError, match="run `make hadoop`"):
        java.jars()

    assert cache.fetch("true").returncode == 0
    assert cache.left() == [java.jars().name, *(f"{java.jars().name}/{name}.jar" for name in ("first", "last"))]


def test_daemons_find_the_classes_of_the_jars_in_the_stored_ones(tmp_path: Path) -> None:
    program, *options = java.command("org.apache.hadoop.util.VersionInfo", tmp_path)
    line = [program, "-Xlog:class+load", *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert "org.apache.hadoop.util.VersionInfo source: shared objects file" in done.stdout


def test_a_class_is_compiled_once_for_each_content_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars, home = java.jars(), tmp_path / "sparktrain"
    (home / "hadoop").mkdir(parents=True)
    (home / "hadoop" / jars.name).symlink_to(jars)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "Small.java"
    source.write_text("class Small {}")

    folder = java.compiled(source)
    stored = (folder / "Small.class").stat()
    assert java.compiled(source) == folder
    assert (folder / "Small.class").stat() == stored

    source.write_text("class Small { int one; }")
    assert java.compiled(source) != folder
    source.write_text("class Small {")
    with pytest.raises(DaemonError, match=r"javac Small.java ended with status 1"):
        java.compiled(source)
    assert len(list((home / "classes").iterdir())) == 2
