"""The contract of a store, for pytest in a pod: `STORE` is the URL, and credentials are in the environment."""

import os
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from sparktrain.testing.store_contract import SharedStoreContract


class TestStoreOfPods(SharedStoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(StoreAddress(f"{os.environ['STORE']}/{uuid4().hex}", timeout_s=30.0))
