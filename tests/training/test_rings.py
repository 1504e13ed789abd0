"""Members of a ring train what one process trains on all of their rows."""

from typing import Any

import numpy as np
import pytest

from tests.training import fits
from tests.training.gangs import run_gang

BACKENDS = ("tensorflow", "horovod")
EVERY = list(fits.CASES)
SOME = ["sgd", "adam_with_clipnorm", "embedding_as_rows", "several_steps_per_execution"]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    (weights,) = run_gang(fits.train, 1, "none", names=EVERY)
    return weights


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("size", "names"), [(2, EVERY), (3, SOME)])
def test_equals_one_process(backend: str, size: int, names: list[str], alone: dict[str, Any]) -> None:
    members = run_gang(fits.train, size, backend, names=names)

    for name in names:
        assert all(member[name] == members[0][name] for member in members), name
        np.testing.assert_allclose(members[0][name], alone[name], rtol=0, atol=1e-6, err_msg=name)
