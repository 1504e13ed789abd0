"""A stand-in for an agent that tests kill: `python -m tests.process.holder SCRATCH` prints the pids below it."""

import asyncio
import sys
from pathlib import Path

import cloudpickle

from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process import harness
from tests.process.harness import Bench, grow


def train(ctx):
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grow(ctx.log_dir)
    ctx.report(0)
    while True:
        signal.pause()


async def main() -> None:
    zygote = ZygoteProcess(Path(sys.argv[1]))
    zygote.start()
    child, trial = await Bench(zygote, Path(sys.argv[1])).start(train)
    spare = await zygote.fork()
    await child.receive()
    await child.receive()
    print(zygote.pid, child.pid, spare.pid, *harness.family(trial), flush=True)
    await zygote.wait_lost()
    print("lost", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(harness)
    asyncio.run(main())
