"""A file of this machine that a command or a call writes for the user."""

import os
from pathlib import Path
from uuid import uuid4

from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError


def output_path(raw_path: str | os.PathLike[str], subject: str) -> Path:
    """The path of a file in a folder that exists; `subject` names what was passed. Raises SpecError."""
    path = Path(raw_path).expanduser()
    if not str(raw_path) or path.is_dir() or not path.parent.is_dir():
        where = "a folder" if path.is_dir() else "in no folder that exists"
        raise SpecError(f"{subject} ({shown(str(raw_path))}) is {where}: pass the path of a local file")
    return path


def replace_file(path: Path, content: bytes, subject: str) -> None:
    """Put the whole file in place of what may be there. Raises SpecError."""
    unfinished = path.with_name(f".{uuid4().hex[:16]}")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        reason = error.strerror or error
        raise SpecError(f"{subject} ({path}) cannot be written: {reason}; pass another path") from error
