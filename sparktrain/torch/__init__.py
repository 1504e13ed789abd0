"""Runs scripts for torchrun in a gang: `python -m sparktrain.torch`."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, those of torchrun, and return its exit code. Blocks."""
    from sparktrain.torch.launcher import run  # members import this package too, and no command line

    return run(arguments)
