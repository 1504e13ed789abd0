"""Whether this machine knows the hosts that a URL names: clients try again what stays wrong until somebody acts."""

import socket
from collections.abc import Sequence

from sparktrain.store.hadoop.hadoop_errors import HdfsErrorKind, TroubleError


def check(places: Sequence[str]) -> None:
    """Raises TroubleError when no `HOST:PORT` of `places` has a host that is known here; blocks on the name service.

    A name service that does not answer is another matter, and passes.
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
        told = f"the host name {', '.join(map(repr, unknown))} is unknown on this machine"
        raise TroubleError(
            told, "correct the URL, or have this machine know the name (DNS, /etc/hosts)", HdfsErrorKind.REFUSED
        )
