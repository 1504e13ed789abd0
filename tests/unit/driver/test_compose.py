"""What a call is composed of."""

import pytest

from sparktrain.driver.options import SweepOptions, options_of
from sparktrain.errors import SpecError


def test_an_option_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"no option 'trial_timout'.*did you mean 'trial_timeout'.*are metric, mode"):
        options_of(SweepOptions, metric="y", trial_timout=5)
    assert options_of(SweepOptions, metric="y", retries=1) == SweepOptions(metric="y", retries=1)
