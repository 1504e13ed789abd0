"""How stages are stored: Spark's metadata, and files of bytes beside it, all by Spark's own readers and writers.

So a stage goes wherever Spark writes tables, such as HDFS and S3, whether or not this process reaches the place itself.
"""

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark.ml.param import Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from sparktrain.errors import DataError, SpecError

EXTRA = "sparktrain"
"""The entry of the metadata with what params do not have."""
PIECE_BYTES = 16 * 2**20
"""A file is stored as rows of this size: the JVM holds no more than 2 GiB in one."""


class StageWriter(MLWriter):
    """Writes one stage: its params, further metadata, and files by name."""

    def __init__(self, stage: Params, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        super().__init__()
        self._stage = stage
        self._extra = dict(extra)
        self._files = dict(files)

    def saveImpl(self, path: str) -> None:
        """Write the stage to the folder `path`, which must not exist. Blocks on Spark jobs. Raises Spark's errors."""
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in self._files.items()}
        extra = {
            **self._extra,
            "files": digests,
            "version": version("sparktrain"),
            "python": platform.python_version(),
        }
        DefaultParamsWriter.saveMetadata(self._stage, path, self.sparkSession, extraMetadata={EXTRA: extra})
        for name, content in self._files.items():
            pieces = [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
            table = pa.table({"number": pa.array(range(len(pieces)), pa.int32()), "content": pieces})
            frame: Any = self.sparkSession.createDataFrame(table)
            frame.coalesce(1).write.parquet(f"{path}/{name}")

    def _handleOverwrite(self, path: str) -> None:
        """Delete what is at `path`: PySpark's own way reaches into the JVM, which a Connect session does not have."""
        from pyspark.sql.utils import is_remote

        if not is_remote():
            super()._handleOverwrite(path)
            return
        from pyspark.ml.connect.readwrite import RemoteMLWriter

        RemoteMLWriter.handleOverwrite(path, True)


class StageReader(MLReader[Any]):
    """Reads one stage: `kind` has a class method `_restored(metadata, files)`."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """The stage in the folder `path`. Blocks on Spark jobs.

        Raises DataError for another stage and for files that are corrupt, and Spark's error where there is none.
        """
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        extra = metadata.get(EXTRA)
        if extra is None or extra.get("stage") != self._kind.STAGE:
            raise DataError(
                f"{path} holds a {metadata['class']}, and {self._kind.__name__}.load() reads a {self._kind.__name__}: "
                "load it with its own class"
            )
        files = {name: self._read(f"{path}/{name}", digest) for name, digest in extra["files"].items()}
        stage = self._kind._restored(extra, files)
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        return stage

    def _read(self, path: str, digest: str) -> bytes:
        rows = self.sparkSession.read.parquet(path).orderBy("number").collect()
        content = b"".join(bytes(row["content"]) for row in rows)
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"{path} is corrupt: its bytes differ from those that were saved; save the stage again")
        return content


def check_class(stage: object) -> None:
    """Raise SpecError for a stage that could be saved and not loaded: only the name of its class is stored."""
    kind = type(stage)
    if stage.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        where = "in this script or notebook" if stage.__module__ == "__main__" else "within a function"
        raise SpecError(
            f"{kind.__qualname__} is defined {where}, and a saved stage has only the name of its class, so that no "
            "other program could load it: move the class to a module that can be imported"
        )
