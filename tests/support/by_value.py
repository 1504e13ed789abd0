"""Functions of tests go to their trials by value."""

from collections.abc import Iterator

import cloudpickle
import pytest

import tests


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Iterator[None]:
    """Pickle functions of tests by value: otherwise each call packs this tree, each agent unpacks it, and each trial
    imports the module of its test, with pytest and what else that uses, which takes 2 to 5 s of a core. For a module:
    a worker goes from a ring that does so to one that does not, and back."""
    cloudpickle.register_pickle_by_value(tests)
    yield
    cloudpickle.unregister_pickle_by_value(tests)
