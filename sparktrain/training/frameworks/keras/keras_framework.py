"""Keras 3 as a framework. Imports nothing of it."""

import sys

from sparktrain.training.frameworks.contract import Framework


class Keras(Framework):
    """See base class. What concerns devices and errors is its backend's."""

    module = "keras"

    def seed(self, value: int) -> None:
        """See base class."""
        sys.modules[self.module].utils.set_random_seed(value)

    def limit_gpu_memory(self, mib: int) -> None:
        """See base class."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """See base class."""
        return False

    def is_broken_collective(self, error: BaseException) -> bool:
        """See base class."""
        return False
