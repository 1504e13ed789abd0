"""gRPC for Python, loaded so that a process which uses it can fork; the one place that imports it.

By default gRPC registers handlers that restart its threads in a forked child. `subprocess` with `preexec_fn`, by which
PySpark starts Java, closes all descriptors of the child between fork and exec: a thread of gRPC found its epoll file
closed, and ended 3 of 100 children ("Java gateway process exited before sending its port number"). Neither the driver
nor agents nor members use gRPC in a forked child. Where the variable is set already, its value counts, and so does what
gRPC has decided where the program has imported it before: a program that forks with channels of its own needs that.
"""

import os

_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"
_is_set = _VARIABLE in os.environ
os.environ.setdefault(_VARIABLE, "0")
try:
    import grpc  # noqa: TID251
    from grpc import aio  # noqa: TID251
finally:
    if not _is_set:  # gRPC has read it: children with a gRPC of their own must not inherit it
        del os.environ[_VARIABLE]

__all__ = ["aio", "grpc"]
