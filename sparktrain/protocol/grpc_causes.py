"""Why an address of the coordinator did not answer, from gRPC's text."""

from sparktrain.protocol import codec
from sparktrain.protocol.grpc_without_fork_handlers import grpc

# gRPC's texts for the causes: (part of the text, cause, whether another attempt cannot succeed).
_REFUSED = "connection refused: nothing listens there"
_CAUSES = (
    ("Connection refused", _REFUSED, False),
    ("errors resolving", "name not resolved", False),
    ("DNS resolution failed", "name not resolved", False),
    ("handshake failed", "TLS refused: what listens there is not the coordinator of this run", True),
    ("verification check failed", "TLS refused: what listens there is not the coordinator of this run", True),
    ("Socket closed", "connection closed before it was secured: TLS refused, or no coordinator there", False),
)


class AttemptError(Exception):
    """One address did not answer."""

    def __init__(self, cause: str, final: bool) -> None:
        super().__init__(cause)
        self.final = final
        """Another attempt cannot succeed."""
        self.refused = final or cause.startswith(_REFUSED)
        """Another process than the coordinator answered, or the host refused the connection."""


def failed(code: grpc.StatusCode, details: str) -> AttemptError:
    """The error that the end of an attempt means."""
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return AttemptError(f"speaks another version of the protocol than ours, {codec.VERSION}", final=True)
    for mark, cause, final in _CAUSES:
        if mark in details:
            return AttemptError(f"{cause} ({details})", final)
    return AttemptError(details, final=False)
