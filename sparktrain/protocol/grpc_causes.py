"""Why an address of the coordinator did not answer, from what gRPC says."""

import grpc

from sparktrain.protocol import codec

# How gRPC words the causes: (part of its text, cause, whether another attempt is in vain).
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
        """Whether to try again would be in vain."""
        self.refused = final or cause.startswith(_REFUSED)
        """Whether somebody answered who is not the coordinator, or said that there is none."""


def failed(code: grpc.StatusCode, details: str) -> AttemptError:
    """What the end of an attempt means."""
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return AttemptError(f"speaks another version of the protocol than ours, {codec.VERSION}", final=True)
    for mark, cause, final in _CAUSES:
        if mark in details:
            return AttemptError(f"{cause} ({details})", final)
    return AttemptError(details, final=False)
