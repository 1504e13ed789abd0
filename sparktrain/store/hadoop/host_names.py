"""Checks that this machine can resolve the hosts of a URL, because clients would retry an unknown host in vain."""

import socket
from collections.abc import Sequence

from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind


def check(places: Sequence[str]) -> None:
    """Raise HadoopCallError when this machine knows no host of the `HOST:PORT` in `places`; blocks on the name service.

    A name service that does not answer is no error here.
    """
    unknown = [place.rpartition(":")[0].strip("[]") for place in places if ":" in place]
    for host in list(unknown):
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                continue
        return
    if unknown:
        cause = f"the host name {', '.join(map(repr, unknown))} is unknown on this machine"
        raise HadoopCallError(
            cause, "correct the URL, or have this machine know the name (DNS, /etc/hosts)", HdfsErrorKind.REFUSED
        )
