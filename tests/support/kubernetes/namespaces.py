"""The namespaces that a cluster lives in: when their first process ends, the kernel ends everything in them."""

import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.daemons import DaemonError
from tests.support.kubernetes.addresses import Block, reserve
from tests.support.kubernetes.programs import ADMIN_PATH

COMMAND_TIMEOUT_S = 60.0
READY = b"ready\n"
_END_TIMEOUT_S = 60.0
_CGROUPS = Path("/sys/fs/cgroup")
_COPIED = ("cpuset.cpus", "cpuset.mems")
"""What a new cgroup of version 1 does not inherit, and cannot be used without."""
# The outer shell removes what outlives the namespaces; it holds the reservation of their addresses until then, and so
# does whatever it starts. The inner one is process 1 of them: it ends at the end of its input, which is that of the
# process that started the cluster, and bash reaps what the others leave to it.
_HOLD = """
clean() {
    ip link del "$2"
    for place in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
        [ ! -d "$place" ] || find "$place" -depth -type d -exec rmdir {} +
    done
    rm -rf --one-file-system "$3"
} 2>/dev/null
clean "$@"
mkdir "$3" && unshare --fork --pid --mount --propagation slave --net --uts bash -c '
    mount -t proc proc /proc && ip link set lo up && echo ready && read -r word'
for try in $(seq 50); do
    clean "$@"
    ls -d /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1" >/dev/null 2>&1 || break
    sleep 0.1
done
"""
# Where containerd, the CNI plugins and the kubelet's device manager keep what no setting places elsewhere.
_NODE = """
hostname "$0" && ip link set lo up || exit
for place in /run/netns /run/containerd /var/lib/cni /var/lib/kubelet/device-plugins; do
    mkdir -p $place && mount -t tmpfs tmpfs $place || exit
done
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Namespaces:
    """Those of a cluster, or of a node in it."""

    holder: int
    """A process in them, by its id on this machine."""

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command that runs in them."""
        return ("nsenter", "--target", str(self.holder), "--pid", "--mount", "--net", "--uts", "--")

    def run(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a command in them to its end; returns its output. Raises DaemonError with what it printed."""
        return run(*self.enter, *words, timeout_s=timeout_s)

    @contextmanager
    def node(self, name: str) -> "Iterator[Namespaces]":
        """More namespaces in these: the network, mounts and host name of a node, until the end of the block."""
        words = ("unshare", "--mount", "--propagation", "slave", "--net", "--uts", "sh", "-c", _NODE, name)
        with _held([*self.enter, *words]) as process:
            [holder] = psutil.Process(process.pid).children()
            try:
                yield Namespaces(holder.pid)
            finally:
                with suppress(psutil.NoSuchProcess):
                    holder.kill()


@dataclass(frozen=True)
class Place:
    """What a cluster has of this machine."""

    block: Block
    folder: Path
    """Of the running daemons, with a short path, for sockets; removed with the namespaces."""
    namespaces: Namespaces

    @property
    def name(self) -> str:
        """Of its cgroup and its folder; no other cluster has it."""
        return self.folder.name

    @property
    def link(self) -> str:
        """The network interface of this machine that leads to the cluster."""
        return f"stk{self.block.number}"


@contextmanager
def place() -> Iterator[Place]:
    """Namespaces, addresses, cgroups and a folder that end with the block, and with this process in whatever way.

    Removes what is left of an earlier cluster with the same addresses. Raises DaemonError.
    """
    block, reservation = reserve()
    name = f"sparktrain-kubernetes-{block.number}"
    folder = Path(tempfile.gettempdir(), name)
    words = ["sh", "-c", _HOLD, "sh", name, f"stk{block.number}", os.fspath(folder)]
    with ExitStack() as stack:
        with reservation:
            process = stack.enter_context(_held(words, pass_fds=(reservation.fileno(),)))
        [unshare] = psutil.Process(process.pid).children()
        [first] = unshare.children()
        yield Place(block, folder, Namespaces(first.pid))


def make_cgroups(path: str) -> None:
    """A cgroup in each hierarchy, which a kubelet puts its pods below. Only for version 1 are there several."""
    tops = [_CGROUPS] if (_CGROUPS / "cgroup.controllers").exists() else [*_CGROUPS.iterdir()]
    for top in tops:
        if not (top / "cgroup.procs").exists():
            continue
        cgroup = top
        for part in Path(path).parts:
            cgroup = cgroup / part
            with suppress(FileExistsError):
                cgroup.mkdir()
            for name in _COPIED:
                if (cgroup / name).exists():
                    (cgroup / name).write_text((cgroup.parent / name).read_text())


def run(*words: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command to its end; returns its output. Raises DaemonError with what it printed."""
    environment = {**os.environ, "PATH": ADMIN_PATH}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise DaemonError(f"{' '.join(words)} has not ended within {timeout_s:g} s") from None
    if done.returncode != 0:
        raise DaemonError(f"{' '.join(words)} ended with status {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


@contextmanager
def _held(words: list[str], pass_fds: tuple[int, ...] = ()) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that holds namespaces once it has printed `ready`; at the end of the block its input ends, and it must.

    Raises DaemonError with what it printed, where it does not get as far.
    """
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": ADMIN_PATH},
        pass_fds=pass_fds,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            wait = select.select([process.stdout], [], [], COMMAND_TIMEOUT_S)[0]
            if not wait or process.stdout.readline() != READY:
                process.stdin.close()
                raise DaemonError(f"no namespaces within {COMMAND_TIMEOUT_S:g} s: {process.stderr.read().decode()}")
            yield process
        finally:
            process.stdin.close()
            process.wait(_END_TIMEOUT_S)
