"""Settings of all rings."""

from pathlib import Path

import pytest
from hypothesis import settings

RINGS = [f"tests.{each.name}" for each in Path(__file__).parent.iterdir() if (each / "__init__.py").exists()]
pytest.register_assert_rewrite("sparktrain.testing", *RINGS)  # what helpers compare is shown like what tests compare

settings.register_profile("sparktrain", deadline=None)  # an example's time is the machine's matter, not the product's
settings.load_profile("sparktrain")
