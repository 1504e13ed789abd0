"""Which bytes of a log one answer has: a browser that gets 100 MB of text at once stands still. Pure."""

LOG_BYTES = 2**20
"""The most bytes of a log in one answer."""
_LONGEST_CHARACTER = 4
"""Bytes in UTF-8."""


def wanted_range(size: int, offset: int, tail: int | None, before: int | None) -> tuple[int, int]:
    """The start and the end of the bytes that a request asks for, of a log of `size` bytes.

    With `tail`, the last so many bytes before `before`, or of the log. Else from `offset` on: from the start of a log
    that is shorter, because it is of a newer generation.
    """
    if tail is not None:
        end = size if before is None else min(size, before)
        return max(0, end - min(tail, LOG_BYTES)), end
    start = offset if offset <= size else 0
    return start, min(size, start + LOG_BYTES)


def whole_text(piece: bytes, from_middle: bool) -> tuple[int, bytes]:
    """The part of a piece that is text by itself, and how many bytes at its start are left out.

    A character that is not complete at the end is left for the next piece. `from_middle` pieces start somewhere in the
    log: they start with a whole line here, or where one line fills half of the piece with a whole character.
    """
    skipped = 0
    if from_middle:
        line = piece.find(b"\n", 0, len(piece) // 2) + 1
        skipped = line or _continued(piece)
    return skipped, piece[skipped : len(piece) - _incomplete(piece)]


def _continued(piece: bytes) -> int:
    """Bytes at the start that continue a character."""
    return next((at for at, byte in enumerate(piece[:_LONGEST_CHARACTER]) if byte & 0xC0 != 0x80), 0)


def _incomplete(piece: bytes) -> int:
    """Bytes at the end of a character that lacks some."""
    for back in range(1, min(_LONGEST_CHARACTER, len(piece)) + 1):
        byte = piece[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if length > back else 0
    return 0
