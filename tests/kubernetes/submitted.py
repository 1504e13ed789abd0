"""A training file that only who submits it has."""

import socket


def double(x):
    """A result that is exact, and the pod that it comes from."""
    return {"y": 2 * x, "pod": socket.gethostname()}
