"""Opens an object store by its URL. Loads no library and makes no request before the first use."""

import re
from collections.abc import Callable
from importlib.util import find_spec

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.base import Store, path_problem
from sparktrain.store.objects.azure import AzureBucket
from sparktrain.store.objects.bucket import Bucket
from sparktrain.store.objects.gcs import GcsBucket
from sparktrain.store.objects.memory_bucket import MemoryBucket
from sparktrain.store.objects.object_store import ObjectStore
from sparktrain.store.objects.s3 import S3Bucket

_AZURE_HOST = re.compile(r"([^/@:]+)@([^/@.:]+)\.(?:dfs|blob)\.core\.windows\.net")


def open_s3(address: StoreAddress) -> Store:
    """Open `s3://bucket/folder`, in Amazon S3 or a service with its API. SpecError for other forms, or without s3fs."""
    _require("s3fs", "sparktrain[s3]", address)
    return _open_objects(address, S3Bucket)


def open_gcs(address: StoreAddress) -> Store:
    """Open `gs://bucket/folder`, in Google Cloud Storage. SpecError for another form, or without gcsfs."""
    _require("gcsfs", "gcsfs", address)
    return _open_objects(address, GcsBucket)


def open_azure(address: StoreAddress) -> Store:
    """Open `abfs://container/folder`, or `abfs://container@account.dfs.core.windows.net/folder`, as Hadoop writes it.

    SpecError for another form, or without adlfs.
    """
    _require("adlfs", "adlfs", address)
    scheme, _, location = address.url.partition("://")
    named = _AZURE_HOST.match(location)
    if named is None:
        return _open_objects(address, AzureBucket)
    plain = StoreAddress(f"{scheme}://{named[1]}{location[named.end() :]}", address.settings, address.timeout_s)
    return _open_objects(plain, lambda name, settings: AzureBucket(name, {"account": named[2]} | settings))


def open_memory(address: StoreAddress) -> Store:
    """Open `memory://name/folder`, for tests: only in this process. SpecError for another form, or without fsspec."""
    _require("fsspec", "fsspec", address)
    return _open_objects(address, lambda name, _: MemoryBucket(name))


def _open_objects(address: StoreAddress, bucket: Callable[[str, dict[str, str]], Bucket]) -> Store:
    """Open an object store. The URL is taken literally: it has no escapes."""
    _, _, location = address.url.partition(":")
    name, _, prefix = location.removeprefix("//").rstrip("/").partition("/")
    if "@" in name:
        raise SpecError(
            f"dir ({_shown(address.url)}) has something before an @, such as a secret, which a URL must not hold; "
            "leave it out: credentials come from the environment of each process"
        )
    if not location.startswith("//") or not name or (prefix and path_problem(prefix)):
        raise SpecError(
            f"dir ({address.url}) must have the form {address.url.partition(':')[0]}://bucket/folder, "
            "with single slashes and without '.' and '..'"
        )
    return ObjectStore(bucket(name, address.settings), prefix, address.timeout_s)


def _require(module: str, package: str, address: StoreAddress) -> None:
    if find_spec(module) is None:
        raise SpecError(f"dir ({_shown(address.url)}) needs a package that is not installed: pip install '{package}'")


def _shown(url: str) -> str:
    """`url` with anything before an @ hidden."""
    return re.sub(r"//[^/]*@", "//***@", url)
