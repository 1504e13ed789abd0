"""The language of the tree: spelling, and words that readers of docs, comments, docstrings and messages do not meet.

`make words` fails at each hit of RULES, and at each misspelt word. `python -m scripts.words FILE ...` looks at some
files alone.

Code is not prose: fenced and inline code of pages, and what stands in braces of an f-string are left out. Names that
Python code defines are read as words: `goes_on` is "goes on". Those of tests, which are whole sentences, are left out.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXEMPT = frozenset({"scripts/words.py", "tests/unit/test_words.py", "scripts/house.py"})
"""Files that name the words themselves."""
SPELLED_SO = "fpr,mape,rouge,mirrorring"
"""Words that codespell takes for mistakes: names of metrics, and of a class."""
NAMES_OF_OTHERS = re.compile(r"on_\w+_begin")
"""Names that code must define because a library calls them: methods of Keras's callbacks."""


@dataclass(frozen=True)
class Rule:
    """Words to avoid, and what to write in their place."""

    avoid: re.Pattern[str]
    write: str


def _rule(avoid: str, write: str) -> Rule:
    return Rule(re.compile(rf"\b(?:{avoid})\b", re.IGNORECASE), write)


RULES = (
    _rule(r"tells?|told|telling", "report, print, log, show, or know"),
    _rule(r"says?|said|saying", "report, print, state, or name"),
    _rule(r"(?<!--)(?:beg[aiu]n|begins|beginnings?)", "start"),  # but not the first line of a certificate
    _rule(r"(?:run|runs|ran|tried|done|made|started) again|anew", "retry, requeue, restart, or rewrite"),
    _rule(r"(?:go|goes|going|gone|went) on", "resume or continue"),
    _rule(r"signs? of life|beats?", "heartbeat"),
    _rule(r"on the run", "owner: which driver may write"),
    _rule(r"whomever|whoever|whose|of which", "name the subject"),
    _rule(r"nobody|somebody|anybody|everybody", "name the subject"),
    _rule(r"meetings?|forming", "rendezvous, barrier, or start"),
    _rule(r"(?:take|takes|taking|took|taken) away", "preempt"),
    _rule(r"damage[ds]?|damaging", "corrupt, corruption"),
    _rule(r"(?:keep|keeps|kept) (?:its|their) words?", "verify, or hold its guarantee"),
    _rule(r"slowest one", "straggler"),
    _rule(r"(?:is|are) to (?:be|have)", "must, or the plain verb"),
    _rule(r"lest|unawares|heed(?:s|ed)?|mend(?:s|ed)?|for want of|as it were", "plain words of today"),
)


@dataclass(frozen=True)
class Hit:
    """A word to avoid, where it stands."""

    line: int
    word: str
    write: str


def prose(path: Path, text: str) -> list[tuple[int, str]]:
    """The lines of a file that people read, with their numbers from 1, and without code."""
    match path.suffix:
        case ".md":
            return _of_page(text)
        case ".py":
            return _of_python(text)
        case _:
            return [(number, _after_hash(line)) for number, line in enumerate(text.splitlines(), 1)]


def names(text: str) -> list[tuple[int, str]]:
    """The names that Python code defines, split into words, with their lines from 1."""
    return [
        (line, re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_+", " ", name).strip())
        for line, name in _defined(ast.parse(text))
        if not NAMES_OF_OTHERS.fullmatch(name)
    ]


def hits(path: Path, text: str) -> list[Hit]:
    """Each word to avoid in the prose of a file, and in the names that it defines."""
    named = names(text) if path.suffix == ".py" and not path.is_relative_to(ROOT / "tests") else []
    return [
        Hit(number, match[0], rule.write)
        for number, line in sorted([*prose(path, text), *named])
        for rule in RULES
        for match in rule.avoid.finditer(line)
    ]


def _of_page(text: str) -> list[tuple[int, str]]:
    lines, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            without_code = re.sub(r"`[^`]*`", "`", line)
            lines.append((number, re.sub(r"\]\([^)]*\)|<[^>]*>", "]", without_code)))
    return lines


def _of_python(text: str) -> list[tuple[int, str]]:
    lines = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                without_code = re.sub(r"`[^`]*`|\{[^{}]*\}", "`", line)
                lines.append((token.start[0] + offset, without_code))
    return lines


def _defined(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _after_hash(line: str) -> str:
    return line.partition("#")[2]


def covered() -> list[Path]:
    """Files of the tree, tracked or about to be, that hold prose."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    kinds = {".md", ".py", ".sh", ".yaml", ".yml", ".conf", ".toml"}
    return sorted(
        ROOT / name
        for name in set(listed) - EXEMPT
        if (Path(name).suffix in kinds or name == "Makefile") and (ROOT / name).is_file()
    )


def misspelt(paths: list[Path]) -> int:
    """Exit code of codespell, which prints what it finds; tests misspell options on purpose, and are left out."""
    checked = [str(path) for path in paths if not path.is_relative_to(ROOT / "tests")]
    if not checked:  # without a path codespell looks at the whole folder
        return 0
    command = [sys.executable, "-m", "codespell_lib", f"--ignore-words-list={SPELLED_SO}", *checked]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """The exit code: 0 when the spelling is right and no file has a word to avoid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="the files to look at; by default the whole tree")
    paths = [path.resolve() for path in parser.parse_args().paths] or covered()
    found = [(path, hit) for path in paths for hit in hits(path, path.read_text("utf-8"))]
    for path, hit in found:
        print(f"{path.relative_to(ROOT)}:{hit.line}: {hit.word!r}: write {hit.write}", file=sys.stderr)
    return 1 if misspelt(paths) or found else 0


if __name__ == "__main__":
    raise SystemExit(main())
