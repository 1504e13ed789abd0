"""Hosts on this machine, each a network namespace of its own, with cables that a test can cut, stop, or make longer."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psutil

_USER = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]


@dataclass(frozen=True)
class Host:
    """One of them."""

    address: str
    enter: tuple[str, ...]
    """The words before a command that runs on it."""
    holder: int
    """A process of it that does nothing."""

    def run(self, *words: str) -> str:
        """Run a command on it; returns its output. Raises CalledProcessError."""
        done = subprocess.run([*self.enter, *words], check=True, capture_output=True, timeout=30, text=True)
        return done.stdout

    def cut(self) -> None:
        """Cut the cable: from now on, both sides send into the void, and neither learns of it."""
        self.run("ip", "link", "set", "cable", "down")

    def move(self, before: str, after: str) -> None:
        """Let it have its address at another of its network interfaces."""
        [shown] = json.loads(self.run("ip", "-json", "link", "show", "dev", before))
        self.run("ip", "link", "set", before, "down")
        self.run("ip", "address", "del", f"{self.address}/24", "dev", before)
        self.run("ip", "link", "set", after, "address", shown["address"])
        self.run("ip", "address", "add", f"{self.address}/24", "dev", after)
        self.run("ip", "link", "set", after, "up")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes are stopped, as on a machine that sleeps."""
        try:
            self._signal(signal.SIGSTOP, psutil.STATUS_STOPPED)
            yield
        finally:
            self._signal(signal.SIGCONT, None)

    def _signal(self, signum: signal.Signals, until: str | None) -> None:
        """Signal all processes, and those that are forked meanwhile."""
        done: set[int] = set()
        while left := [each for each in self._processes() if each.pid not in done and each.status() != until]:
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signum)
                done.add(each.pid)

    def _processes(self) -> list[psutil.Process]:
        own = os.readlink(f"/proc/{self.holder}/ns/net")
        found = []
        for each in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                if each.pid != self.holder and os.readlink(f"/proc/{each.pid}/ns/net") == own:
                    found.append(each)
        return found


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other; they end with the context."""
    with ExitStack() as stack:
        first = _namespace(stack, *([] if os.getuid() == 0 else ["--map-root-user"]))
        second = _namespace(stack, before=_enter(first))
        hosts = Host("10.77.0.1", _enter(first), first), Host("10.77.0.2", _enter(second), second)
        hosts[0].run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(second))
        for each in hosts:
            each.run("ip", "address", "add", f"{each.address}/24", "dev", "cable")
            each.run("ip", "link", "set", "cable", "up")
            each.run("ip", "link", "set", "lo", "up")
        yield hosts


@dataclass(frozen=True)
class Network:
    """Hosts on a bridge; this process is outside of them, at `address`."""

    address: str
    hosts: tuple[Host, ...]
    bridge: str

    @contextmanager
    def cut(self, number: int, way: str = "link") -> Iterator[float]:
        """Lose what a host sends ("out") or gets ("in"), or both ("link"): neither side learns of it.

        Yields the time of that.
        """
        host = self.hosts[number]
        if way == "link":
            host.cut()
        elif way == "out":
            host.run("ip", "route", "add", "blackhole", f"{self.address}/32")
        else:
            _ip("route", "add", "blackhole", f"{host.address}/32")
        try:
            yield time.time()
        finally:
            if way == "link":
                host.run("ip", "link", "set", "cable", "up")
            elif way == "out":
                host.run("ip", "route", "del", "blackhole", f"{self.address}/32")
            else:
                _ip("route", "del", "blackhole", f"{host.address}/32")

    @contextmanager
    def far(self, number: int, delay_s: float, loss: float) -> Iterator[None]:
        """Put a host behind a long link: what it sends and gets takes `delay_s`, and a share of `loss` is lost."""
        host, near = self.hosts[number], f"stn{os.getpid()}"
        words = [near, "far", "--delay", str(delay_s), "--loss", str(loss)]
        link = subprocess.Popen([sys.executable, "-m", "tests.support.far_link", *words], stdout=subprocess.PIPE)
        try:
            assert link.stdout is not None
            assert link.stdout.readline() == b"ready\n"
            _ip("link", "set", near, "master", self.bridge, "up")
            _ip("link", "set", "far", "netns", str(host.holder))
            host.move("cable", "far")
            yield
            host.move("far", "cable")
        finally:
            link.terminate()
            link.communicate()


@contextmanager
def bridged_hosts(count: int) -> Iterator[Network]:
    """So many hosts, with names that do not resolve; they and the bridge end with the context. Needs root."""
    bridge, prefix = f"stb{os.getpid()}", f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 256}"
    with ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("address", "add", f"{prefix}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts = []
        for number in range(count):
            pid = _namespace(stack, "--uts")
            host = Host(f"{prefix}.{number + 2}", ("nsenter", "--target", str(pid), "--net", "--uts"), pid)
            cable = f"st{os.getpid()}p{number}"
            _ip("link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", str(pid))
            stack.callback(subprocess.run, ["ip", "link", "del", cable], capture_output=True, timeout=30)
            _ip("link", "set", cable, "master", bridge, "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")
            host.run("ip", "link", "set", "lo", "up")
            host.run("hostname", f"host-{number}")
            hosts.append(host)
        yield Network(f"{prefix}.1", tuple(hosts), bridge)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


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
