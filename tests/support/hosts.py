"""Two hosts on this machine, each a network namespace of its own, with a cable between them that a test can cut."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_USER = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]


@dataclass(frozen=True)
class Host:
    """One of them."""

    address: str
    enter: tuple[str, ...]
    """The words before a command that runs on it."""

    def run(self, *words: str) -> None:
        """Run a command on it. Raises CalledProcessError."""
        subprocess.run([*self.enter, *words], check=True, capture_output=True, timeout=30)

    def cut(self) -> None:
        """Cut the cable: from now on, both sides send into the void, and neither learns of it."""
        self.run("ip", "link", "set", "cable", "down")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other; they end with the context."""
    with ExitStack() as stack:
        first = _namespace(stack, *([] if os.getuid() == 0 else ["--map-root-user"]))
        second = _namespace(stack, before=_enter(first))
        hosts = Host("10.77.0.1", _enter(first)), Host("10.77.0.2", _enter(second))
        hosts[0].run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(second))
        for each in hosts:
            each.run("ip", "address", "add", f"{each.address}/24", "dev", "cable")
            each.run("ip", "link", "set", "cable", "up")
            each.run("ip", "link", "set", "lo", "up")
        yield hosts


def _enter(pid: int) -> tuple[str, ...]:
    return ("nsenter", "--target", str(pid), *_USER, "--net")


def _namespace(stack: ExitStack, *own: str, before: tuple[str, ...] = ()) -> int:
    """A process that holds a new network namespace; its pid."""
    holder = subprocess.Popen(
        [*before, "unshare", *own, "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE
    )
    stack.callback(holder.wait)
    stack.callback(holder.kill)
    assert holder.stdout is not None
    stack.enter_context(holder.stdout)
    assert holder.stdout.readline() == b"ready\n"
    return holder.pid
