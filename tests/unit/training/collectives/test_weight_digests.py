"""A digest of weights changes with each of their bits, and with the place of a number."""

import numpy as np
import pytest

from sparktrain.training.collectives.weight_digests import digest

LARGE = 3 * 8 * 4096 + 5
"""More than one block, and a rest."""


@pytest.mark.parametrize("size", [0, 1, 7, LARGE])
def test_every_byte_counts(size: int) -> None:
    content = np.random.default_rng(0).integers(0, 256, size).astype("uint8")
    plain = digest(content)
    for place in {0, size // 2, 8 * 4096, size - 1} & set(range(size)):
        content[place] ^= 0x80
        assert digest(content) != plain
        content[place] ^= 0x80
    assert digest(content) == plain == digest(content.copy())


def test_numbers_that_change_places_count() -> None:
    weights = np.arange(2 * 8192, dtype="float32")
    assert digest(weights) != digest(weights[::-1])
    assert digest(weights.reshape(128, 128)) != digest(weights.reshape(128, 128).T)
    assert digest(np.float32(1)) != digest(np.float32(-1))
