"""The definition of a case of bad input."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparktrain.errors import SpecError, UserError


@dataclass(frozen=True)
class Files:
    """Writes files for a case."""

    folder: Path

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@dataclass(frozen=True)
class Case:
    id: str
    call: Callable[[Files], object]
    patterns: tuple[str, ...]
    """Patterns that the message must match: the subject, the value, the rule, the next step."""
    error: type[UserError] = SpecError


def spec_case(id: str, call: Callable[[], object], *patterns: str) -> Case:
    return Case(id, lambda _: call(), patterns)
