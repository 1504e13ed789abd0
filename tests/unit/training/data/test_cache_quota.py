"""What a member learns of the local storage of its pod."""

import pytest

from sparktrain.datasets.manifest import MemberData
from sparktrain.training.data.open_data import STORAGE_KEY, quota_of


@pytest.mark.parametrize(
    ("variable", "cache_dir", "expected"),
    [(str(2**30), None, 2**30), (None, None, None), ("0", None, None), (str(2**30), "/disk/of/the/host", None)],
)
def test_the_quota_of_a_pod_concerns_the_cache_in_its_own_storage(
    variable: str | None, cache_dir: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STORAGE_KEY, raising=False)
    if variable is not None:
        monkeypatch.setenv(STORAGE_KEY, variable)
    assert quota_of(MemberData(cache_dir=cache_dir)) == expected
