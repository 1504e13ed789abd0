"""From the URL of an object store to the store. Nothing is loaded or touched before it is used."""

import re
from collections.abc import Callable
from importlib.util import find_spec

from sparktrain.errors import SpecError
from sparktrain.spec.store import StoreAddress
from sparktrain.store.azure import AzureBucket
from sparktrain.store.base import Store, path_problem
from sparktrain.store.bucket import Bucket
from sparktrain.store.gcs import GcsBucket
from sparktrain.store.memory import MemoryBucket
from sparktrain.store.objects import ObjectStore
from sparktrain.store.s3 import S3Bucket

_AZURE_HOST = re.compile(r"([^/@:]+)@([^/@.:]+)\.(?:dfs|blob)\.core\.windows\.net")
