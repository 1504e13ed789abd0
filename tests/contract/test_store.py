"""The stores of this package against the contract."""

from pathlib import Path

import pytest

from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.testing.store_contract import StoreContract


class TestLocalStore(StoreContract):
    rounds = 200

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "not" / "there yet")
