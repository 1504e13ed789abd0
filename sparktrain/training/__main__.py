"""Runs the zygote, and each member that it forks: `python -m sparktrain.training AGENT_PID`, stdin a socket."""

import os
import socket
import sys

from sparktrain.base.clock import SystemClock
from sparktrain.base.nesting import enter_member
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.training.member import run_member
from sparktrain.training.zygote import Zygote


def main() -> None:
    """Run the zygote until its agent is gone; in each forked child, run a member."""
    enter_member()
    zygote = Zygote(_control(), SystemClock())
    zygote.start(agent_pid=int(sys.argv[1]))
    child = zygote.serve()
    if child is not None:
        run_member(child, zygote.mark_assigned)


def _control() -> BlockingPipe[m.ToZygote]:
    """The socket that is stdin, moved to a descriptor that no subprocess inherits."""
    sock = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    return BlockingPipe(sock, m.ToZygote)


if __name__ == "__main__":
    main()
