"""What a checkpoint gives back: the position, and what was saved by name; no process needs to hold all of an array."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.extras import EXTRA, split_name, unpack
from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles

SPLIT = "split"
"""The key, in the document of a state, of the paths of arrays that members hold in parts."""


class StoredArray:
    """An array in a checkpoint, to which each member has saved its part. It reads what is asked of it from local files.

    An index of slices reads their elements alone, as `jax.make_array_from_callback` asks for them on each member:
    `lambda index: restored["weights"][index]`. Any other index, and `numpy.asarray`, read all of it. Each read blocks
    on the local disk, and raises CheckpointError when the files cannot be read. Any thread may read.
    """

    def __init__(self, files: TensorFiles, name: str) -> None:
        self._files = files
        self._name = name
        self.shape = files.shape(name)
        """Of the whole array."""

    def __getitem__(self, index: Any) -> Array:
        parts = index if isinstance(index, tuple) else (index,)
        is_plain = all(isinstance(part, slice) and part.step in (None, 1) for part in parts)
        if len(parts) > len(self.shape) or not is_plain:
            content: Array = np.asarray(self)[index]
            return content
        trailing = (slice(None),) * (len(self.shape) - len(parts))
        return self._files.read_slice(self._name, (*parts, *trailing))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        content = self._files.read(self._name)
        return content if dtype is None else content.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self.shape}>"


@dataclass(frozen=True)
class Restored:
    """The position of a checkpoint, and what was saved with it. `restored["name"]` is `restored.extra["name"]`."""

    step: int
    epoch: int | None
    batch: int | None
    """Finished batches of `epoch`."""
    extra: Mapping[str, Any]
    """Arrays as numpy arrays, those that members held in parts as `StoredArray`. All else is as JSON returns it: tuples
    are lists."""
    members: int = 0
    """Number of members that have statistics and metrics of their own in it."""

    def __getitem__(self, name: str) -> Any:
        return self.extra[name]


def restored_of(files: TensorFiles, document: dict[str, Any]) -> Restored:
    """What `files` with this `document` have for the user. Blocks on the disk; raises CheckpointError."""
    # Views: all of them may not fit in memory, as the files of a folder.
    arrays = [(path, np.asarray(files.view(f"{EXTRA}{number}"))) for number, path in enumerate(document["arrays"])]
    paths = document.get(SPLIT, ())
    lasting_files = TensorFiles(files.folder) if paths else files  # open as long as one of the arrays lives
    split_arrays = [(path, StoredArray(lasting_files, split_name(path))) for path in paths]
    extra = unpack(document["extra"], [*arrays, *split_arrays])
    return Restored(document["step"], document["epoch"], document["batch"], extra, document.get("members", 0))
