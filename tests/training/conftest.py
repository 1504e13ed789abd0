"""Settings of this ring."""

from tests.support.by_value import by_value as by_value
