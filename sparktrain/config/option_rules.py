"""The rules of option values: how each kind is parsed, checked, and named in help."""

import math
import os
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Generic, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.config.quantities import Duration, count, memory, seconds
from sparktrain.errors import SpecError

Change = Literal["code", "space", "data", "metric", "seed", "gang"]
CHANGES: tuple[str, ...] = get_args(Change)
"""What must not change between two drivers of a run, unless the later one allows it."""

CoordinatorPlace = Literal["driver", "cluster"]

_NOTICES = "'/run/leaving' or 'http://169.254.169.254/latest/meta-data/spot/instance-action'"

T = TypeVar("T")


class ValueRule(Struct, Generic[T], frozen=True):
    """A kind of value. `check` and `read` take a value and the subject of the message; both raise SpecError."""

    check: Callable[[Any, str], T]
    """Checks and converts a value."""
    metavar: str
    """What help shows for the value; empty for a flag without one."""
    read: Callable[[Any, str], Any] = lambda text, subject: text
    """Parses text of the command line, or the list of texts of a flag that repeats."""
    repeats: bool = False
    """Whether the flag may be repeated."""
    takes: Any = None
    """The type of what callers may pass, where it is another one than that of the checked value."""


def integer(least: int) -> ValueRule[int]:
    """Whole numbers of at least `least`."""
    return ValueRule(lambda value, subject: count(value, subject, least), "N", _parsed_integer)


def whole_or_none(least: int) -> ValueRule[int | None]:
    """Whole numbers of at least `least`, or `none` for the default, as parameter files write it."""
    return ValueRule(
        lambda value, subject: None if value == "none" else count(value, subject, least),
        "N",
        lambda word, subject: word if word == "none" else _parsed_integer(word, subject),
    )


def listed(check: Callable[[Any, str], T], metavar: str, takes: Any) -> ValueRule[T]:
    """Lists of names; on the command line with commas between them."""
    return ValueRule(check, metavar, lambda text, subject: words(text), takes=takes)


def words(text: str) -> tuple[str, ...]:
    """The words in a list with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def wait(value: Any, subject: str) -> float:
    """Seconds of a wait that must end. Raises SpecError."""
    if (wait_s := seconds(value, subject)) is None:
        raise SpecError(f"{subject} is None, a wait must end: pass seconds, such as 300")
    return wait_s


def flag(value: object, subject: str) -> bool:
    """`value` when it is a bool. Raises SpecError."""
    if not isinstance(value, bool):
        raise SpecError(f"{subject} is {described(value)}, true or false is expected; pass True or False")
    return value


def switch(value: object, subject: str) -> bool:
    """`value` when it is a bool, or one of the texts "on" and "off". Raises SpecError."""
    if isinstance(value, str):
        if value not in ("on", "off"):
            raise SpecError(f"{subject} ({shown(value)}) must be on or off")
        return value == "on"
    return flag(value, subject)


def place(value: object, subject: str) -> str:
    """`value` when it is a path or a URL, as text. Raises SpecError."""
    if not isinstance(value, str | os.PathLike) or not (path := os.fspath(value)) or not isinstance(path, str):
        raise SpecError(f"{subject} is {described(value)}, a path or URL is expected; write {str(value or 'runs')!r}")
    return path


def notice_address(value: object, subject: str = "notice") -> str:
    """`value` when it is an absolute path, an https URL, or an http URL of this host or its link. Raises SpecError."""
    if not isinstance(value, str | os.PathLike) or not isinstance(address := os.fspath(value), str):
        raise SpecError(f"{subject} is {described(value)}, a path or URL is expected; write {_NOTICES}")
    if "://" not in address:
        if not os.path.isabs(address):
            raise SpecError(
                f"{subject} ({shown(address)}) must be an absolute path, because agents look for the file on their own "
                f"host, or a URL; write {_NOTICES}"
            )
        return address
    try:
        url = urlsplit(address)
        host = url.hostname or ""
        valid = bool(host) and (url.port is None or url.port > 0)
    except ValueError:
        valid = False
    if not valid or url.scheme not in ("http", "https"):
        raise SpecError(f"{subject} ({shown(address)}) must be a path, or a URL with https:// or http://: {_NOTICES}")
    if url.username is not None or url.password is not None:
        raise SpecError(
            f"{subject} has a password in its URL of {host}, which the run directory would show: use a URL without one"
        )
    if url.scheme == "http" and not _is_near(host):
        raise SpecError(
            f"{subject} ({shown(address)}) must start with https://: with http:// any host on the way could end agents "
            "by it; http:// is for addresses of the host itself and its link, such as 127.0.0.1 and 169.254.169.254"
        )
    return address


def notice_or_none(value: object, subject: str) -> str | None:
    """As `notice_address`; None for `none`, as parameter files write the default. Raises SpecError."""
    return None if value == "none" else notice_address(value, subject)


def _is_near(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local


def text(value: object, subject: str) -> str:
    """`value` when it is a text. Raises SpecError."""
    if not isinstance(value, str):
        raise SpecError(f"{subject} is {described(value)}, text is expected; write {str(value)!r}")
    return value


def module_names(value: object, subject: str = "preload") -> tuple[str, ...]:
    """`value` when it is a list of names. Raises SpecError."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise SpecError(f"{subject} is {described(value)}, a list of module names is expected; write ['numpy']")
    return tuple(value)


def changes(value: object, subject: str = "allow_changed") -> tuple[str, ...]:
    """`value` when each of its entries is one of `CHANGES`; text has commas between them. Raises SpecError."""
    named: object = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(named, Sequence | frozenset | set):
        raise SpecError(f"{subject} is {described(value)}, a list is expected: name what may change, as in ['code']")
    for change in named:
        if change not in CHANGES:
            hint = did_you_mean(change, CHANGES) if isinstance(change, str) else ""
            raise SpecError(f"{subject} ({shown(change)}) must name what may change: {', '.join(CHANGES)}{hint}")
    return tuple(map(str, named))


def coordinator_place(value: Any, subject: str) -> CoordinatorPlace | None:
    """Where a coordinator is. Raises SpecError."""
    if value is None:
        return None
    if value == "driver":
        return "driver"
    if value == "cluster":
        return "cluster"
    raise SpecError(f"{subject} ({shown(value)}) must be 'driver' or 'cluster'")


def checkpoint_choice(value: object, subject: str) -> str:
    """`value` as "newest", "best" or "none"; True is the newest, False none. Raises SpecError."""
    if isinstance(value, bool):
        return "newest" if value else "none"
    if not isinstance(value, str) or value not in ("newest", "best", "none"):
        raise SpecError(f"{subject} ({shown(value)}) must be 'newest', 'best' or 'none'")
    return value


LEAST_WEIGHT = 0.001
MOST_WEIGHT = 1000.0


def share_weight(value: object, subject: str = "weight") -> float:
    """`value` as a weight among other calls, a number from `LEAST_WEIGHT` to `MOST_WEIGHT`, also from text.

    Raises SpecError.
    """
    try:
        weight = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        weight = math.nan
    # Sums and quotients of weights such as 1e308 are infinite, or no number: in one call they once ended all others.
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise SpecError(
            f"{subject} ({shown(value)}) must be a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}: a call of weight 2 "
            "gets twice the slots of one of weight 1; to run only on slots that no other call wants, pass priority=-1"
        )
    return weight


def _parsed_integer(word: str, subject: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise SpecError(f"{subject} ({shown(word)}) must be a whole number: write digits, such as 2") from None


LEAST_PRIORITY = -1000
WEIGHT = ValueRule(share_weight, "N")
TIME = ValueRule(seconds, "TIME", takes=Duration)
WAIT = ValueRule(wait, "TIME", takes=Duration)
MEMORY = ValueRule[int | None](
    lambda value, subject: None if value == "none" else memory(value, subject), "SIZE", takes=int | str
)
"""An amount of memory, or `none` for no limit."""
FLAG = ValueRule(flag, "")
SWITCH = ValueRule(switch, "on|off")
PLACE = ValueRule(place, "PATH", takes=str | os.PathLike[str])
TEXT = ValueRule(text, "TEXT")
MODULES = listed(module_names, "M1,M2", Sequence[str])
CHANGED = listed(changes, "K1,K2", Sequence[Change] | str)
