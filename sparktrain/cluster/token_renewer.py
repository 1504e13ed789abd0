"""The delegation tokens of a run: when to fetch new ones, and when to warn that they expire."""

import atexit
import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.cluster.delegation_tokens import Fetched, fetch
from sparktrain.cluster.kerberos_ticket import Ticket, ticket
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import StoreError
from sparktrain.protocol.messages import Tokens
from sparktrain.store.call_timeout import THREADS, OverdueError
from sparktrain.store.hadoop.hadoop_conf import split
from sparktrain.store.hadoop.token_file import TokenFile
from sparktrain.store.held_folders import hold

FETCH_TIMEOUT_S = 30.0
MOST_S = 3600.0
"""The longest time between two fetches, however long the tokens last."""
LEAST_S = 1.0
RETRY_S = 60.0
"""The longest time after a failed fetch, and between two looks at tokens that Spark renews."""
WITHOUT_TOKENS_S = 10.0
"""Between two attempts while there are no valid tokens."""
WARN_AT = (75, 50, 10)
"""The rest of a life, in percent, at which a warning names its end."""

logger = logging.getLogger("sparktrain")


def wait_s(left_s: float, fresh: bool, failed: bool) -> float:
    """The time to the next fetch for tokens that last `left_s`: half of that, and less after a failure."""
    if left_s <= 0:
        return WITHOUT_TOKENS_S
    if failed:
        return max(LEAST_S, min(RETRY_S, left_s / 8))
    return max(LEAST_S, min(MOST_S if fresh else RETRY_S, left_s / 2))


class Countdown:
    """Reports each threshold of `WARN_AT` once while a life comes to its end, and all again for a longer life."""

    def __init__(self) -> None:
        self._whole_s = 0.0
        self._left_s = 0.0
        self._reported = 101

    def passed(self, left_s: float) -> int | None:
        """The threshold, in percent of the life, that has just been passed; None when no warning is due."""
        if left_s > self._left_s + 1.0:
            self._whole_s = left_s
            self._reported = 101
        self._left_s = left_s
        due = [percent for percent in WARN_AT if left_s <= self._whole_s * percent / 100 and percent < self._reported]
        if not due:
            return None
        self._reported = due[-1]
        return self._reported


class TokenKeeper:
    """The newest tokens of a run. Its methods belong to one thread at a time; `renew` blocks."""

    def __init__(
        self,
        source: Callable[[], Fetched],
        token_file: TokenFile,
        clock: Clock,
        held: Callable[[], Ticket | None] = ticket,
        owner: str = "",
    ) -> None:
        """`token_file` is the token file of this process, for use while `held` returns no ticket; runs with one `owner`
        have the same tokens."""
        self.tokens: Tokens | None = None
        """For agents; None when there are none."""
        self._source = source
        self._token_file = token_file
        self._clock = clock
        self._held = held
        self._owner = owner
        self._fresh = True
        self._ends_at = 0.0
        self._due_at = 0.0
        self._complained = False
        """Whether a warning has named that executors have no tokens."""
        self._of_tokens = Countdown()
        self._of_ticket = Countdown()

    @property
    def is_due(self) -> bool:
        """Whether to call `renew`."""
        return self._clock.now() >= self._due_at

    def renew(self) -> bool:
        """Fetch tokens, and return whether they differ from those before. A failure is logged and keeps the old tokens.

        Blocks for `FETCH_TIMEOUT_S` at most. Raises OSError when this process cannot write its own file.
        """
        start = self._clock.now()
        problem = ""
        changed = False
        try:
            changed = self._take(THREADS.run(self._source, FETCH_TIMEOUT_S), start)
        except (StoreError, OverdueError) as error:
            problem = str(error)
        left_s = self._ends_at - self._clock.now()
        self._due_at = self._clock.now() + wait_s(left_s, self._fresh, bool(problem))
        self._warn(left_s, problem)
        return changed

    def _take(self, fetched: Fetched, start: float) -> bool:
        changed = self.tokens is None or self.tokens.content != fetched.content
        self._complained = False
        self.tokens = Tokens(fetched.content)
        self._fresh = fetched.fresh
        self._ends_at = start + fetched.life_s
        # A driver without a ticket has no other tokens for its own clients of HDFS.
        if changed and not has_ticket(self._held):
            self._token_file.keep(fetched.content, self._owner)
        return changed

    def _warn(self, left_s: float, problem: str) -> None:
        of_tokens = self._of_tokens.passed(left_s)
        ended = left_s <= 0 and not self._complained
        if problem and (ended or of_tokens is not None):
            self._complained = left_s <= 0
            logger.warning("%s", cannot_fetch(problem, left_s))
        elif of_tokens is not None and not self._fresh:
            logger.warning("%s", tokens_end(left_s))
        if (held := self._held()) is not None and self._of_ticket.passed(held.left_s) is not None:
            logger.warning("%s", ticket_ends(held))


def cannot_fetch(problem: str, left_s: float) -> str:
    """The warning for a failed fetch."""
    until = f"those that executors have end in {left_s:.0f} s" if left_s > 0 else "executors have none"
    return f"{problem}; {until}: check that the KDC and the NameNode answer, and that `klist` shows a valid ticket"


def tokens_end(left_s: float) -> str:
    """The warning for tokens that cannot be replaced."""
    return (
        f"the delegation tokens of this application end in {left_s:.0f} s, and it has no ticket to fetch new ones: "
        "runs that last longer must be submitted with --principal and --keytab"
    )


def ticket_ends(held: Ticket) -> str:
    """The warning for a ticket that expires."""
    return (
        f"the Kerberos ticket of {held.principal} ends in {held.left_s:.0f} s, and with it the run's access to HDFS: "
        f"run `kinit {held.principal}` on the driver's host, or submit with --principal and --keytab"
    )


def wants_tokens(address: StoreAddress) -> bool:
    """Whether the store authenticates its clients by Kerberos."""
    kerberos = address.settings.get("hadoop.security.authentication", "simple") == "kerberos"
    return kerberos and address.url.startswith("hdfs:")


def tokens_for(session: Any, address: StoreAddress) -> TokenKeeper | None:
    """The tokens of a run in the store, fetched once; None when it needs none, or the session has none. Blocks."""
    if not wants_tokens(address):
        return None
    context = getattr(session, "_sc", None)
    if context is None:
        logger.warning("a Spark Connect session has no delegation tokens: executors need tickets of their own")
        return None
    # Tokens that Spark renews reach the JVMs of executors, and never their Python.
    source = partial(fetch, context, address.url)
    keeper = TokenKeeper(source, _process_token_file(), SystemClock(), owner=split(address.url)[0])
    keeper.renew()
    return keeper


def has_ticket(held: Callable[[], Ticket | None] = ticket) -> bool:
    """Whether this process has a valid ticket. Blocks for a local file."""
    current_ticket = held()
    return current_ticket is not None and current_ticket.left_s > 0


@cache
def _process_token_file() -> TokenFile:
    """The file of this process, for all its runs: their tokens come from one JVM."""
    folder = hold("driver")
    atexit.register(folder.close)
    return TokenFile(folder.path)
