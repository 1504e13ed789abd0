"""Checkpoints in the stores of this package."""

from pathlib import Path

import pytest

from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from tests.contract.checkpoint_contract import CheckpointContract
from tests.unit.store.gated import MemoryStore


class TestInADirectory(CheckpointContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "runs")


class TestInMemory(CheckpointContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
