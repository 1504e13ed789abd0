"""The zygote's process, and by forking each member's: `python -m sparktrain.training AGENT_PID`, stdin a socket."""

import os
import socket
import sys

from sparktrain.clock import SystemClock
from sparktrain.nesting import enter_member
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.training.member import live
from sparktrain.training.zygote import Zygote


def main() -> None:
    """Be the zygote until its agent goes; in each forked child, be a member."""
    enter_member()
    zygote = Zygote(_control(), SystemClock())
    zygote.start(agent_pid=int(sys.argv[1]))
    child = zygote.serve()
    if child is not None:
        live(child, zygote.began)


def _control() -> BlockingPipe[m.ToZygote]:
    """The socket that came as stdin, moved to where no subprocess inherits it."""
    sock = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    return BlockingPipe(sock, m.ToZygote)


if __name__ == "__main__":
    main()
