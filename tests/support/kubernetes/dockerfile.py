"""A Dockerfile's content without a registry: its instructions, carried out in a folder that debootstrap fills."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.daemons import DaemonError

STEP_S = 1800.0
"""The longest that one instruction may take, on a slow network."""
_SYSTEM = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_MOUNTS = 'mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && mount -t proc proc "$0/proc"'
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with the text of each."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines.splitlines() if line.strip()]


class ImageRoot:
    """What an image has: a folder with its files, and how its containers start. Needs root; all methods block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = dict(_SYSTEM)
        self.user = "0"
        self.workdir = "/"
        self.entrypoint: list[str] = []
        self._arguments = {name: value for name, value in os.environ.items() if name == "PIP_CERT"}

    def build(self, dockerfile: Path, context: Path, arguments: Mapping[str, str]) -> None:
        """Carry out all instructions. Raises DaemonError for one that fails, with its last lines."""
        for instruction, text in instructions(dockerfile.read_text()):
            match instruction:
                case "FROM":
                    self._bootstrap(text.removeprefix("debian:"))
                case "RUN":
                    self.run(["sh", "-euc", text], user="0", environment=self.environment | self._arguments)
                case "COPY":
                    *sources, target = text.split()
                    for source in sources:
                        self._copy(context / source, self.folder / target.lstrip("/"))
                case "ARG":
                    name, _, value = text.partition("=")
                    self._arguments[name] = arguments.get(name, value)
                case "ENV":
                    self.environment |= dict(word.split("=", 1) for word in shlex.split(text))
                case "USER":
                    self.user = text
                case "WORKDIR":
                    self.workdir = text
                case "ENTRYPOINT":
                    self.entrypoint = json.loads(text)
                case _:
                    raise DaemonError(f"{dockerfile} has {instruction}, which the builder of these tests does not know")

    def run(self, words: Sequence[str], user: str | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run a command in the folder, by default as its containers run; what it prints. Raises DaemonError."""
        owner = user or self.user
        inside = words if user else ["env", f"--chdir={self.workdir}", *words]
        chroot = [f"--userspec={owner}:{owner}", os.fspath(self.folder), *inside]
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--propagation=private",
                "sh",
                "-c",
                f'{_MOUNTS} && exec /usr/sbin/chroot "$@"',
                self.folder,
                *chroot,
            ],
            env=dict(environment or self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        if done.returncode != 0:
            raise DaemonError(f"{shlex.join(words)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout

    def remove(self) -> None:
        """Delete the folder, and nothing that is mounted there."""
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=True)

    def _bootstrap(self, suite: str) -> None:
        words = ["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, os.fspath(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=STEP_S, check=False)
        if done.returncode != 0:
            raise DaemonError(f"debootstrap of {suite} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        # This machine's way to the network.
        for name in ("etc/resolv.conf", "etc/hosts"):
            shutil.copy(f"/{name}", self.folder / name)
        shutil.copy(f"/{_CERTIFICATES}", self.folder / _CERTIFICATES)

    def _copy(self, source: Path, target: Path) -> None:
        """As Docker does: of a folder, what it has."""
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
