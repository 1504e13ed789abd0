"""Where a run directory was when a file in it was written: shows whether the directory that has the file is a copy."""

from msgspec import Struct

from sparktrain.store.base import Store

_HADOOP = ("hdfs", "webhdfs", "swebhdfs")


class RunPlace(Struct, frozen=True):
    """A run directory."""

    url: str = ""
    """As the process that wrote it names it; empty where an older sparktrain has noted no place."""
    folder: str = ""
    """`Store.folder_identity`; empty where it is unknown."""

    @classmethod
    def of(cls, store: Store, run: str) -> "RunPlace":
        """The place now of the run in the folder `run`. Blocks; raises OSError."""
        return cls(store.where(run), store.folder_identity(run))

    def is_still(self, now: "RunPlace") -> bool:
        """This is for certain the directory that is at `now`, perhaps by another name."""
        if self.folder and now.folder:
            return self.folder == now.folder or (self.url == now.url and self._number == now._number)
        return self._has_url_of(now)

    def is_elsewhere(self, now: "RunPlace") -> bool:
        """This is for certain another directory than the one at `now`, which is a copy of it, or was moved."""
        if self.url == "" or self._has_url_of(now):
            return False
        return self.folder == "" or self._number != now._number

    def _has_url_of(self, now: "RunPlace") -> bool:
        return self.url == now.url or self._hadoop_path == now._hadoop_path != ""

    @property
    def _number(self) -> str:
        """The number of the folder: its device is another one on another host, and after a restart."""
        return self.folder.rpartition("-")[2]

    @property
    def _hadoop_path(self) -> str:
        """Its path in HDFS, where one directory has several URLs; empty for any other place."""
        scheme, _, location = self.url.partition("://")
        return location.partition("/")[2] if scheme in _HADOOP else ""
