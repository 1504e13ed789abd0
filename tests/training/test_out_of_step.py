"""Members that call different collectives fail at once with both calls; slow ones do not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.executor.zygote_process import MemberProcess, ZygoteProcess
from sparktrain.protocol import pipe_messages as m
from sparktrain.state.agent_messages import PeerShared, Seating, Standing
from sparktrain.state.outcome import FailureKind, Outcome
from sparktrain.state.topology import MemberAddress
from sparktrain.training.gang_join import RING_TIMEOUT_S
from tests.process.harness import MARK, Bench, marked
from tests.training import breaking
from tests.training.gangs import run_gang

OTHER_CALLS = pytest.mark.all(
    case="other shapes, and one call more, on Horovod's ring", covered_by="on TensorFlow's ring"
)

SLOW_ON_HOROVOD = pytest.mark.all(
    case="a slow member of Horovod's ring, for longer than the deadline of a collective",
    covered_by="of TensorFlow's ring; `training/test_slow_members`: a slow member of Horovod's ring",
)

HERE = "127.0.0.1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zygote(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ZygoteProcess]:
    """A zygote that has imported what rings need."""
    folder = tmp_path_factory.mktemp("zygote")
    mark = str(folder)
    zygote = ZygoteProcess(folder, env={MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "2"})
    zygote.start()
    assert await zygote.preload(("tensorflow", "keras", "horovod.tensorflow")) == {}
    yield zygote
    await zygote.close()
    assert not marked(mark)


async def gang(zygote: ZygoteProcess, folder: Path, function: Any, backend: str) -> list[Outcome]:
    """How each of two members ends that call `function`; what they share goes from one to the other."""
    bench = Bench(zygote, folder)
    members = [Member(RunId("run"), TrialId(0), Generation(1), Rank(rank)) for rank in range(2)]
    changes = [{"member": member, "size": 2, "backend": Backend(backend)} for member in members]
    children = [(await bench.start(function, **each))[0] for each in changes]
    ports: dict[int, int] = {}

    async def see_out(rank: int, child: MemberProcess) -> Outcome:
        ended = None
        while (message := await child.receive()) is not None:
            match message:
                case Standing(port=port):
                    ports[rank] = port
                    if len(ports) == 2:
                        roles = (Role.CHIEF, Role.WORKER)
                        places = tuple(MemberAddress("here", HERE, ports[at], role) for at, role in enumerate(roles))
                        for each in children:
                            each.send(Seating(member=members[0], places=places))
                case m.SharedValue(key=key, value=value):
                    children[1 - rank].send(PeerShared(members[1 - rank], key, value))
                case m.FunctionEnded(outcome=outcome):
                    ended = outcome
        await child.wait()
        assert ended is not None
        return ended

    return list(await asyncio.gather(*(see_out(*each) for each in enumerate(children))))


def other_shapes(ctx):
    ctx.allreduce(1.0)
    import numpy as np

    ctx.allreduce(np.ones(3 + ctx.rank, "float32"))


def other_order(ctx):
    import numpy as np

    for size in (2, 3)[:: 1 - 2 * ctx.rank]:
        ctx.broadcast(np.ones(size, "float32"))
        ctx.allreduce(np.ones(size, "float32"))


def one_call_more(ctx):
    ctx.allreduce(1.0)
    if ctx.rank == 0:
        ctx.allgather([1])


def a_step_for_a_number(ctx):
    """Rank 1 trains a step, in a graph, while rank 0 asks the others for a number."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.set_weights(ctx.broadcast(model.get_weights()))
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    for step in range(2):
        if step and not ctx.rank:
            ctx.allreduce(1.0)
        model.train_on_batch(np.ones((2, 2), "float32") + ctx.rank, np.ones((2, 1), "float32"))


CASES = {
    "shapes": (other_shapes, ["rank 0 calls allreduce 'value' of float32[3]; rank 1 calls", "of float32[4]"]),
    "order": (other_order, ["rank 0 calls broadcast 'value' of float32[2]; rank 1 calls", "float32[3]"]),
    "one more": (one_call_more, ["rank 0 calls allgather 'value'", "rank 1 calls none, for its function has returned"]),
    "a graph": (a_step_for_a_number, ["rank 0 calls allreduce 'value' of", "rank 1 calls allreduce 'gradients' of"]),
}


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("tensorflow", list(CASES)),
        ("horovod", ["order", "a graph"]),
        pytest.param("horovod", ["shapes", "one more"], marks=OTHER_CALLS),
        pytest.param("torch", ["shapes", "order", "one more"], marks=pytest.mark.torch),
    ],
    ids=["tensorflow", "horovod", "others", "torch"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_members_that_call_different_operations_report_both(
    backend: str, names: list[str], zygote: ZygoteProcess, tmp_path: Path
) -> None:
    for name in names:
        function, words = CASES[name]
        ends = await gang(zygote, tmp_path / name, function, backend)

        failures = [end.failure for end in ends if end.failure is not None]
        mismatches = [each for each in failures if each.kind is FailureKind.MISMATCH]
        assert mismatches, (name, failures)
        assert all(each.kind.follows for each in failures if each not in mismatches), name
        for each in mismatches:
            assert all(word in each.summary for word in words), each.summary
        assert max(end.seconds for end in ends) < RING_TIMEOUT_S, name
        for each in mismatches:  # a member that has returned has no line
            assert function.__name__ in each.traceback or (name == "one more" and not each.traceback)


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("horovod", marks=SLOW_ON_HOROVOD)])
def test_members_wait_for_a_slow_one(backend: str) -> None:
    assert run_gang(breaking.slow, 2, backend, ring_timeout_s=2.5, seconds=5.0) == [3.0, 3.0]
