"""Modules that the user's code imports by the name of another library: the archive has a stub in place of each."""

_stubs: dict[str, bytes] = {}


def add_alias(name: str, stub: str) -> None:
    """Send `stub` as the package `name` with all code from now on; a module of that name is not sent.

    `stub` is the source that puts the module of this package in its place. Repeating the call changes nothing.
    """
    _stubs[name] = stub.encode()


def is_alias(name: str) -> bool:
    """Whether the top-level module `name` is another one's in this process."""
    return name in _stubs


def stub_files() -> dict[str, bytes]:
    """The stubs by their names in the archive."""
    return {f"{name}/__init__.py": stub for name, stub in _stubs.items()}
