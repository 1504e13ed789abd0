"""What becomes of the files that a script writes in its working directory, which is deleted with the trial."""

import shutil
from collections.abc import Collection
from pathlib import Path

from sparktrain.training.notices import notice

_SHOWN = 3
"""So many files are named in a notice."""


def keep_files(patterns: Collection[str], folder: Path, log_dir: Path) -> None:
    """Move files and folders below `folder` that match one of `patterns` to `log_dir`, from where they are stored.

    Blocks on the local disk. A file that cannot be moved is named in a notice.
    """
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if not path.exists():
                continue  # in a folder that has moved, or a link to nothing
            target = log_dir / path.relative_to(folder)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
            except OSError as error:
                notice(f"{path.relative_to(folder)} of the working directory is not stored: {error}")


def show_deleted(folder: Path, read: str) -> None:
    """Issue a notice about files that are still in `folder`, but for `read`, which the trial has as metrics."""
    names = sorted(path.name + "/" * path.is_dir() for path in folder.glob("*") if _has_file(path, folder / read))
    if names:
        count = f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
        notice(
            f"the script has written {', '.join(names[:_SHOWN])}{count} in its working directory, which is deleted "
            "with the trial: --keep-files PATTERN (keep_files=) stores such files in the run directory"
        )


def _has_file(path: Path, read: Path) -> bool:
    """Whether `path` is a file, or a folder with one, but for `read`."""
    files = path.rglob("*") if path.is_dir() else [path]
    return any(file != read and not file.is_dir() for file in files)
