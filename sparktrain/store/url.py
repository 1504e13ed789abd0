"""Opens the store that the user names with `dir=`."""

import os
import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def open_store(dir: str | os.PathLike[str] | StoreAddress) -> Store:
    """Open the store with root `dir`, a path or a URL. Makes no request: `Store.probe` does.

    | `dir` | |
    |---|---|
    | `runs`, `/shared/runs`, `file:///shared/runs` | a directory |
    | `hdfs:///runs`, `hdfs://nameservice/runs` | in HDFS, found by `$HADOOP_CONF_DIR` |
    | `hdfs://host:port/runs` | in HDFS; the address of the NameNode |
    | `webhdfs://host:port/runs`, `swebhdfs://...` | in HDFS; by HTTP, or HTTPS; several with `,` between |
    | `s3://bucket/runs`, `s3a://...` | in Amazon S3, or a service with its API |
    | `gs://bucket/runs`, `gcs://...` | in Google Cloud Storage |
    | `abfs://container/runs`, `abfss://...`, `az://...` | in Azure |
    | `memory://name/runs` | in the memory of this process: for tests |

    Raises SpecError for anything else, and when a required library or configuration is missing.
    """
    address = dir if isinstance(dir, StoreAddress) else StoreAddress(os.fspath(dir))
    text = address.url
    if not text or not text.isprintable():
        raise SpecError(f"dir ({text!r}) must be the path of a directory: not empty, and of printable characters")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStore(os.path.expanduser(text), address.timeout_s)
    opener = _OPENERS.get(scheme[1].lower())
    if opener is None:
        raise SpecError(
            f"dir ({text}) names a {scheme[1]} store, which sparktrain does not have: pass a path on storage that all "
            f"hosts share, or a URL that starts with one of {', '.join(f'{prefix}:' for prefix in sorted(_OPENERS))}"
        )
    return opener(address)


def _open_file(address: StoreAddress) -> Store:
    parts = urlsplit(address.url)
    if parts.netloc not in ("", "localhost"):
        raise SpecError(
            f"dir ({address.url}) names a directory of host {parts.netloc}: write file:///path, with three slashes"
        )
    return LocalStore(unquote(parts.path), address.timeout_s)


def _open_hdfs(address: StoreAddress) -> Store:
    from sparktrain.store.hadoop.hdfs import HdfsStore  # few runs need Hadoop's names, errors and configuration

    return HdfsStore.at(address)


def _open_webhdfs(address: StoreAddress) -> Store:
    from sparktrain.store.hadoop.webhdfs import WebHdfsStore  # as above

    return WebHdfsStore.at(address)


def _open_objects(address: StoreAddress) -> Store:
    from sparktrain.store.objects import object_urls  # as above: their clients of HTTP run on event loops

    openers = {
        "abfs": object_urls.open_azure,
        "abfss": object_urls.open_azure,
        "az": object_urls.open_azure,
        "gcs": object_urls.open_gcs,
        "gs": object_urls.open_gcs,
        "memory": object_urls.open_memory,
        "s3": object_urls.open_s3,
        "s3a": object_urls.open_s3,
    }
    return openers[address.url.partition(":")[0].lower()](address)


def _refuse_viewfs(address: StoreAddress) -> Store:
    raise SpecError(
        f"dir ({address.url}) is a mount table of Hadoop's clients, in which sparktrain cannot look names up: write "
        "hdfs://nameservice/path, as the table in core-site.xml has it"
    )


_OPENERS: dict[str, Callable[[StoreAddress], Store]] = {
    "abfs": _open_objects,
    "abfss": _open_objects,
    "az": _open_objects,
    "file": _open_file,
    "gcs": _open_objects,
    "gs": _open_objects,
    "hdfs": _open_hdfs,
    "memory": _open_objects,
    "s3": _open_objects,
    "s3a": _open_objects,
    "swebhdfs": _open_webhdfs,
    "viewfs": _refuse_viewfs,
    "webhdfs": _open_webhdfs,
}
