"""Reports in few files: the whole contract in memory, and full blocks."""

import pytest

from sparktrain.rundir.metric_log import MetricLog
from sparktrain.rundir.report_parts import lines_of
from sparktrain.store.base import Store
from tests.contract.metric_log_contract import LAYOUT, MetricLogContract, row, steps
from tests.unit.store.gated import MemoryStore


class TestReportsInADict(MetricLogContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


@pytest.mark.long
def test_a_full_block_is_never_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    log = MetricLog(store, LAYOUT, full_bytes=1000)
    written: list[int] = []
    put = store.put_if_absent

    def counted(path: str, data: bytes) -> bool:
        written.append(len(data))
        return put(path, data)

    monkeypatch.setattr(store, "put_if_absent", counted)
    for step in range(200):
        log.append(lines_of([row(step)]))
    stored = sum(len(content) for content in store.files.values())
    assert sum(written) <= 2.2 * stored
    assert sum(len(content) < 1000 for content in store.files.values()) < 12
    assert steps(store) == list(range(200))
