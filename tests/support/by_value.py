"""Functions of tests go to their trials by value."""

from collections.abc import Iterator

import cloudpickle
import pytest

import tests


@pytest.fixture(autouse=True, scope="package")
def by_value() -> Iterator[None]:
    """Pickle functions of tests by value: otherwise each call packs this tree, each agent unpacks it, and each trial
    imports the module of its test, with pytest and what else that uses, which takes 2 to 5 s of a core."""
    cloudpickle.register_pickle_by_value(tests)
    yield
    cloudpickle.unregister_pickle_by_value(tests)
