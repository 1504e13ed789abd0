"""One side of a gRPC link in a separate process: `python peers.py agent|coordinator`, with a pickled pair on stdin.

Prints `ready` on stdout when it can be killed. Not a test.
"""

import asyncio
import os
import pickle
import sys
from collections.abc import AsyncIterator

from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.grpc import GrpcDialer, GrpcListener
from sparktrain.protocol.messages import Heartbeat, UploadDone, UploadHeader
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Link, LinkClosedError
from tests.support.transports import HEADER, JOIN, endless

JOURNAL_FILES = 20
"""The type of what the coordinator opens for each upload."""


async def attend(ticket: AgentTicket, what: str) -> None:
    """An agent that stays, sends heartbeats or uploads forever, or leaves in order."""
    dialer = GrpcDialer(ticket)
    link = await dialer.attend(10)
    link.post(JOIN)
    await link.receive()
    print("ready", flush=True)
    match what:
        case "heartbeat":
            while True:
                link.post(Heartbeat())
                await asyncio.sleep(0.01)
        case "upload":
            await dialer.upload(HEADER, endless())
        case "leave":
            await dialer.close()
        case _:
            await link.receive()


async def listen(bundle: CertificateBundle) -> None:
    """A coordinator that prints its address, and stays."""

    async def on_link(link: Link) -> None:
        try:
            while True:
                await link.receive()
        except LinkClosedError:
            pass

    async def on_upload(_: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        for each in [os.open(os.devnull, os.O_RDONLY) for _ in range(JOURNAL_FILES)]:
            os.close(each)
        return UploadDone(sum([len(chunk) async for chunk in chunks]))

    _, port = await GrpcListener("127.0.0.1", (0,), bundle).start(on_link, on_upload)
    print(port, flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    subject, what = pickle.load(sys.stdin.buffer)
    asyncio.run(listen(subject) if isinstance(subject, CertificateBundle) else attend(subject, what))
