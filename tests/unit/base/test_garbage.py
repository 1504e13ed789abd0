"""Work without passes of the garbage collector leaves the collector as it was."""

import gc

import pytest

from sparktrain.base.garbage import uncollected


def test_the_collector_is_off_within_and_as_before_after_it():
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_turns_it_on_again():
    with pytest.raises(ValueError, match="broken"), uncollected():
        raise ValueError("broken")
    assert gc.isenabled()
