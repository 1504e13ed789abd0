"""Training functions of PyTorch, JAX and Keras on both, that use a GPU."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.on_gpu import meet, wait_for, write_to_illegal_address
from tests.support import drill

PIECE_MIB = 256
STEPS = 40
KILL_AT = 14


def filled(framework: str, mib: int) -> float:
    """Hold arrays of so many MiB in all on the GPU; returns a number of the last."""
    counts = [*[PIECE_MIB] * (mib // PIECE_MIB), mib % PIECE_MIB or 1]
    if framework == "torch":
        import torch

        pieces: list[Any] = [torch.ones(count, 2**18, device="cuda") for count in counts]
    else:
        import jax

        assert jax.default_backend() == "gpu"
        pieces = [jax.numpy.ones((count, 2**18)).block_until_ready() for count in counts]
    return float(pieces[-1][0, 0])


def limit_mib(framework: str) -> float:
    """What the framework may use of its GPU, as it has it itself."""
    if framework == "torch":
        import torch

        _, total = torch.cuda.mem_get_info()
        return torch.cuda.get_per_process_memory_fraction() * total / 2**20
    import jax

    return float(jax.local_devices()[0].memory_stats()["bytes_limit"]) / 2**20


def side_by_side(x: int, folder: str, framework: str) -> dict[str, float]:
    """Two trials at a time, each with half of its slice in use."""
    limit = limit_mib(framework)
    value = filled(framework, int(limit) // 2)
    meet(folder, x, 1)
    return {"y": value, "limit": limit}


def greedy(x: int, folder: str, framework: str) -> dict[str, float]:
    """Trial 0 wants three times its slice, and trial 1 half of its own before and after that."""
    limit = int(limit_mib(framework))
    filled(framework, limit // 4)
    meet(folder, x, 1)
    if x == 0:
        try:
            filled(framework, 3 * limit)
        finally:
            Path(folder, "refused").touch()
    wait_for(Path(folder, "refused"))
    return {"y": filled(framework, limit // 2)}


def illegal_address(x: int, folder: str, framework: str) -> dict[str, float]:
    """Trial 0 writes to an illegal address of the GPU while trial 1 uses it; later trials only use it."""
    filled(framework, 64)
    if x > 1:
        return {"y": 1.0}
    meet(folder, x, 1)
    if x == 0:
        status = write_to_illegal_address()
        Path(folder, "broken").touch()
        filled(framework, 64)  # the framework finds its context broken
        raise RuntimeError(f"CUDA error {status} left {framework} as it was")
    wait_for(Path(folder, "broken"))
    return {"y": filled(framework, 64)}


def learn(folder: str, ctx: Any, kill_at: int = 0, rank: int = 0) -> dict[str, float]:
    """Train a model of PyTorch on the GPU with memory checkpoints alone; lose member `rank` after a step."""
    import torch

    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(48, 5, generator=generator).cuda()
    y = x.sum(1, keepdim=True).sin()
    plain = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    model = ctx.distribute(plain)
    optimizer = torch.optim.Adam(plain.parameters(), 0.01)
    restored = ctx.checkpoint.restore(model, optimizer)
    start = 0 if restored is None else restored.step
    share = slice(ctx.rank, None, ctx.size)
    with ctx.memory_checkpoints(model, optimizer, every="0.01s") as memory:
        for step in range(start + 1, STEPS + 1):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[share]), y[share])
            loss.backward()
            optimizer.step()
            memory.step(step)
            if ctx.generation == 1 and ctx.rank == rank and step == kill_at:
                os.kill(drill.pid_of("member"), signal.SIGKILL)
    total = ctx.allreduce(loss.detach(), average=True)
    assert total.is_cuda
    weights = np.concatenate([weight.detach().cpu().ravel() for weight in plain.parameters()])
    np.save(Path(folder, f"weights-{ctx.rank}.npy"), weights)
    return {"start": start, "loss": float(total)}


def collectives(ctx: Any) -> dict[str, float]:
    """What the ring makes of tensors of the GPU."""
    import torch

    mine = torch.arange(3.0, device="cuda") + ctx.rank
    total = ctx.allreduce(mine, average=False)
    rows = ctx.allgather(mine[: ctx.rank + 1])
    sent = ctx.broadcast(mine)
    assert all(tensor.is_cuda for tensor in (total, rows, sent))
    return {"total": float(total.sum()), "rows": float(rows.sum()), "sent": float(sent.sum())}


def by_nccl() -> dict[str, float]:
    """A script that takes NCCL, also where members share the GPU."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    total = torch.ones(3, device="cuda")
    dist.all_reduce(total)
    dist.destroy_process_group()
    return {"y": float(total[0])}


def by_jax(ctx: Any) -> dict[str, float]:
    """A collective of JAX, which has NCCL alone on GPUs."""
    return {"y": float(ctx.allreduce(np.ones(3, np.float32), average=False)[0])}


def fit(folder: str, ctx: Any, die_at: int = -1) -> dict[str, float]:
    """Keras trains on the GPU, with a checkpoint each 4 steps; rank 0 dies after a batch of the first generation."""
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    optimizer = ctx.distribute(keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse")
    x = np.random.default_rng(3).normal(size=(64, 5)).astype("float32")
    y = np.sin(x.sum(1, keepdims=True))

    class Death(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (ctx.generation, ctx.rank, batch) == (1, 0, die_at):
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [*ctx.keras_callbacks(checkpoint_every=4), Death()]
    model.fit(ctx.shard((x, y), batch_size=16 // ctx.size), epochs=3, verbose=0, callbacks=callbacks)
    assert on_gpu(model.weights[0].value)
    weights = np.concatenate([np.ravel(keras.ops.convert_to_numpy(weight)) for weight in model.weights])
    np.save(Path(folder, f"weights-{ctx.rank}.npy"), weights)
    return {"generation": ctx.generation, "loss": float(model.evaluate(x, y, verbose=0))}


def on_gpu(value: Any) -> bool:
    """Whether a tensor of PyTorch, or an array of JAX, is on a GPU."""
    if hasattr(value, "is_cuda"):
        return bool(value.is_cuda)
    return {device.platform for device in value.devices()} == {"gpu"}
