"""Token files as Hadoop writes them, read as far as it takes to put several into one.

A process has one token file, and its clients know no other (`token_file`). Runs that share an agent may have their
stores on different clusters, and each has its own tokens. The format is that of Hadoop's
`Credentials.writeTokenStorageToStream`: magic bytes, a version, the tokens by their alias, and secret keys by theirs;
numbers are of Hadoop's type `VInt`.
"""

from collections.abc import Iterable

MAGIC = b"HDTS"
WRITABLE = 0
"""The version of the format that is read here, which Hadoop writes by default."""
_TOKEN_PARTS = 4
"""Identifier, password, kind and service."""


def merged(contents: Iterable[bytes]) -> bytes:
    """One token file with all that is in `contents`. Of two tokens with one alias it has the later one.

    Where one is of another format, the last one is returned as it is.
    """
    tokens: dict[bytes, bytes] = {}
    secrets: dict[bytes, bytes] = {}
    for content in (contents := list(contents)):
        parsed = _parsed(content)
        if parsed is None:
            return contents[-1]
        tokens |= parsed[0]
        secrets |= parsed[1]
    return MAGIC + bytes([WRITABLE]) + _written(tokens) + _written(secrets)


def _parsed(content: bytes) -> tuple[dict[bytes, bytes], dict[bytes, bytes]] | None:
    """The tokens and the secret keys of a content, as bytes by alias; None for another format."""
    if not content.startswith(MAGIC + bytes([WRITABLE])):
        return None
    reader = _Reader(content, len(MAGIC) + 1)
    try:
        tokens = {reader.block(): reader.blocks(_TOKEN_PARTS) for _ in range(reader.number())}
        secrets = {reader.block(): reader.blocks(1) for _ in range(reader.number())}
    except (IndexError, ValueError):
        return None
    return tokens, secrets


def _written(entries: dict[bytes, bytes]) -> bytes:
    return _vint(len(entries)) + b"".join(_vint(len(alias)) + alias + entry for alias, entry in entries.items())


def _vint(number: int) -> bytes:
    """A number from 0, as `WritableUtils.writeVInt` of Hadoop writes it: above 127 with its length before it."""
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([256 - 112 - size]) + number.to_bytes(size, "big")


class _Reader:
    """Reads a content from a position on. Raises IndexError or ValueError where it ends too early."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self._position = position

    def number(self) -> int:
        """The next number. Raises ValueError for a negative one, which no token file has."""
        first = self._content[self._position]
        self._position += 1
        if first <= 127:
            return first
        size = 256 - 112 - first
        if not 1 <= size <= 4:
            raise ValueError(f"a number of {size} bytes")
        return int.from_bytes(self._taken(size), "big")

    def block(self) -> bytes:
        """The next bytes, which have their length before them."""
        return self._taken(self.number())

    def blocks(self, count: int) -> bytes:
        """The next `count` blocks, as they stand."""
        start = self._position
        for _ in range(count):
            self.block()
        return self._content[start : self._position]

    def _taken(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._content):
            raise IndexError(end)
        part = self._content[self._position : end]
        self._position = end
        return part
