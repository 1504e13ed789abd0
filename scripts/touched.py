"""The tests that a change can reach: `make test-touched` runs them, and `make test` finds what it misses.

A test of an inner ring is reached by its imports. Tests of outer rings start whole runs, which use nearly all of the
core: each has a subject, which is what its file and the programs of its folder import themselves, what it is named
for, and what EDGES adds. A change of the core also runs the core's own tests, CORE in the Makefile.

    python -m scripts.touched CORE...                        prints the tests, against the merge base with origin/main
    python -m scripts.touched --base HEAD~3 CORE...          against another commit
    python -m scripts.touched --history 700 CORE...          the minutes that each commit would have taken
    python -m scripts.touched --measured FILE.xml            stores the seconds of each file, from pytest's --junitxml
"""

import argparse
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from scripts.import_map import PACKAGE, ImportMap, read_imports
from scripts.touched_edges import ALL_TESTS, EDGES, READERS, TOOLS, WINGS

ROOT = Path(__file__).parents[1]
SECONDS = ROOT / "tests" / "seconds.txt"
INNER = ("architecture", "unit", "contract", "histories")
ALONE = ("gpu", "kubernetes")
"""Rings that only a target of their own runs."""
WORKERS = 3
ONE_WORKER = ("spark", "hadoop")
"""Rings that one worker runs, by and large: no number of workers makes them shorter."""
START_S = 20.0
CASE_S = 20.0
LIMIT_MIN = 10.0


class Touched:
    """The tests that changed files reach. `core` are the tests of the whole core: files, folders and single cases."""

    def __init__(self, imports: ImportMap, core: Sequence[str]) -> None:
        self._files = imports.uses
        tests = {path for path in imports.uses if fnmatch(path, "tests/*/test_*.py")}
        self._tests = {test for test in tests if test.split("/")[1] not in ALONE}
        self._core = {case for case in core if "::" in case}
        self._core |= {test for test in self._tests if _matches(test, (*core, *(f"{folder}/*" for folder in core)))}
        self._sources = {path: set(_subject(imports, path)) for path in self._tests}

    def tests(self, changed: Iterable[str]) -> list[str]:
        """The files and cases to run, in order. Of a changed path that is no longer there, its folder counts."""
        paths = {self._current(path) for path in changed}
        if any(_matches(path, ALL_TESTS) for path in paths):
            return sorted(self._tests)
        chosen = {test for test in self._tests if test in paths or self._sources[test] & paths}
        for sources, tests in (*EDGES, *READERS):
            if any(_matches(path, sources) for path in paths):
                chosen |= {test for test in self._tests if _matches(test, tests)}
        if any(_is_core(path) for path in paths):
            chosen |= {case for case in self._core if case.partition("::")[0] not in chosen}
        return sorted(chosen)

    def foreseen(self, changed: Iterable[str]) -> Iterator[bool]:
        """For each changed file of tests, whether the files of the package that changed with it select it."""
        paths = set(changed)
        if package := [path for path in paths if path.startswith(f"{PACKAGE}/")]:
            selected = set(self.tests(package))
            yield from (test in selected for test in paths & self._tests)

    def _current(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        return path if path in self._files or not folder else f"{folder}/__init__.py"


def _subject(imports: ImportMap, test: str) -> Iterator[str]:
    """The files that the test is about."""
    ring = test.split("/")[1]
    folders = [str(folder) for folder in PurePosixPath(test).parents if len(folder.parts) > 1]
    starts = [test, *(f"{folder}/conftest.py" for folder in folders if f"{folder}/conftest.py" in imports.uses)]
    if ring in INNER:
        for start in starts:
            yield from imports.reach(start)
        return
    name = PurePosixPath(test).stem.removeprefix("test_")
    package = {path for path in imports.uses if path.startswith(f"{PACKAGE}/")}
    yield from (path for path in package if name in PurePosixPath(path).with_suffix("").parts)
    for start in starts:
        yield from imports.reach(start, ("tests/", "scripts/", "benchmarks/")) - package
        programs = imports.reach(start, f"tests/{ring}/") & package
        yield from (path for path in programs if not _matches(path, TOOLS))


def _is_core(path: str) -> bool:
    return path.startswith(f"{PACKAGE}/") and not _matches(path, WINGS)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


class Durations:
    """How long tests take: seconds of a worker for each file, as a whole `make test` had them."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def minutes(self, tests: Iterable[str]) -> float:
        """The minutes of a run of these files and cases. Files that a whole `make test` leaves out count nothing."""
        rings: Counter[str] = Counter()
        for test in tests:
            rings[test.split("/")[1]] += CASE_S if "::" in test else self._seconds.get(test, 0.0)
        longest = max(rings[ring] for ring in ONE_WORKER)
        return (START_S + max(longest, sum(rings.values()) / WORKERS)) / 60 if rings else 0.0


def renamed_since(log: str) -> list[tuple[str, list[str]]]:
    """The commits of `git log --name-status -M --format=@%h`, newest first, each with the paths that it touched, under
    the names that these have now."""
    now: dict[str, str] = {}
    commits: list[tuple[str, list[str]]] = []
    for line in filter(None, log.splitlines()):
        if line.startswith("@"):
            commits.append((line[1:], []))
            continue
        status, *paths = line.split("\t")
        commits[-1][1].append(now.get(paths[-1], paths[-1]))
        if status.startswith("R"):
            now[paths[0]] = now.get(paths[1], paths[1])
    return commits


def measured(report: str, files: Iterable[str]) -> dict[str, float]:
    """The seconds of each file in a JUnit report of pytest."""
    by_name = {path.removesuffix(".py").replace("/", "."): path for path in files}
    seconds: Counter[str] = Counter()
    for case in ET.fromstring(report).iter("testcase"):
        name = case.get("classname", "")
        while name and name not in by_name:
            name = name.rpartition(".")[0]  # of a class in the file
        if name:
            seconds[by_name[name]] += float(case.get("time", 0))
    return dict(seconds)


def stored_seconds(text: str) -> dict[str, float]:
    """The seconds of each file, from lines of both."""
    return {path: float(value) for value, path in (line.split() for line in text.splitlines() if line[:1] != "#")}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed_files(base: str) -> list[str]:
    """The files that differ from `base`, those of the working tree too."""
    differing = _git("diff", "--name-only", "--no-renames", _git("merge-base", base, "HEAD").strip())
    return [*differing.splitlines(), *_git("ls-files", "--others", "--exclude-standard").splitlines()]


def _print_history(touched: Touched, durations: Durations, number: int) -> None:
    commits = renamed_since(_git("log", f"-{number}", "--no-merges", "-M", "--name-status", "--format=@%h"))
    minutes = [durations.minutes(touched.tests(paths)) for _, paths in commits]
    share = sum(value <= LIMIT_MIN for value in minutes) / len(minutes)
    print(f"{share:.0%} of {len(minutes)} commits take at most {LIMIT_MIN:g} minutes")
    whole = durations.minutes(touched.tests(ALL_TESTS))
    print(f"median: {statistics.median(minutes):.1f} minutes; all tests: {whole:.1f}")
    selected = [test for _, paths in commits for test in touched.foreseen(paths)]
    foreseen = sum(selected) / len(selected)
    print(f"{foreseen:.0%} of {len(selected)} files of tests that changed with the package are selected for its change")


def main(arguments: Sequence[str]) -> None:
    """Print the tests, or what the options ask for."""
    parser = argparse.ArgumentParser(prog="scripts.touched", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("core", nargs="*")
    parser.add_argument("--base", default="origin/main")
    parser.add_argument("--history", type=int)
    parser.add_argument("--measured", type=Path)
    options = parser.parse_args(arguments)
    imports = read_imports(ROOT)
    if options.measured:
        seconds = measured(options.measured.read_text("utf-8"), imports.uses)
        SECONDS.write_text("".join(f"{value:.1f} {path}\n" for path, value in sorted(seconds.items())), "utf-8")
        return
    touched = Touched(imports, options.core)
    durations = Durations(stored_seconds(SECONDS.read_text("utf-8")))
    if options.history:
        _print_history(touched, durations, options.history)
        return
    changed = changed_files(options.base)
    tests = touched.tests(changed)
    print(f"{len(changed)} changed files reach {len(tests)} files of tests: about "
          f"{durations.minutes(tests):.0f} minutes", file=sys.stderr)  # fmt: skip
    print("\n".join(tests))


if __name__ == "__main__":
    main(sys.argv[1:])
