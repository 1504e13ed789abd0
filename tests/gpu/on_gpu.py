"""Training functions that use a GPU, for the tests of this ring."""

import ctypes
import os
from pathlib import Path
from typing import Any

import sparktrain as st
from sparktrain.base.clock import SystemClock, pause
from tests.faults.learning import learn
from tests.support.mortal import NAME

PATIENCE_S = 200.0
"""How long a trial waits for the other one."""
PIECE_MIB = 256
"""Kernels count the elements of a tensor in 32 bits."""
ILLEGAL_ADDRESS = 700
"""CUDA_ERROR_ILLEGAL_ADDRESS."""
_STORE_AT_16 = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry store_at_16()
{
    .reg .b32 %value;
    .reg .b64 %address;
    mov.u32 %value, 1;
    mov.u64 %address, 16;
    st.global.u32 [%address], %value;
    ret;
}
"""
"""A kernel that writes where no memory is; the driver compiles it."""


def device() -> Any:
    """The one logical GPU of this process. AssertionError where TensorFlow sees none, or several."""
    import tensorflow as tf

    [gpu] = tf.config.list_logical_devices("GPU")
    return gpu


def limit_mib() -> int:
    """Its limit, as TensorFlow has it."""
    import tensorflow as tf

    [physical] = tf.config.list_physical_devices("GPU")
    [part] = tf.config.get_logical_device_configuration(physical)
    return int(part.memory_limit)


def filled(mib: int) -> float:
    """Hold tensors of so many MiB in all on the GPU; returns a number of the last. Raises ResourceExhaustedError."""
    import tensorflow as tf

    whole, rest = divmod(mib, PIECE_MIB)
    with tf.device(device().name):
        pieces = [tf.fill([piece, 2**18], 1.0) for piece in (*[PIECE_MIB] * whole, *([rest] if rest else []))]
        return float(pieces[-1][0, 0])


def wait_for(path: Path) -> None:
    """Wait for a file of the other trial."""
    clock = SystemClock()
    until = clock.now() + PATIENCE_S
    while not path.exists():
        assert clock.now() < until, f"{path.name} is not there after {PATIENCE_S:g} s"
        pause(0.02)


def meet(folder: str, x: int, others: int) -> None:
    """Wait until trials 0 to `others` have come here, too."""
    Path(folder, f"there-{x}").touch()
    for each in range(others + 1):
        wait_for(Path(folder, f"there-{each}"))


def side_by_side(x: int, folder: str) -> dict[str, float]:
    """Two trials at a time, each with half of its slice in use."""
    limit = limit_mib()
    value = filled(limit // 2)
    meet(folder, x, 1)
    wait_for(Path(folder, "measured"))
    return {"y": value, "limit": limit}


def greedy(x: int, folder: str) -> dict[str, float]:
    """Trial 0 wants three times its slice, and trial 1 half of its own before and after that."""
    from tensorflow.errors import ResourceExhaustedError

    limit = limit_mib()
    filled(limit // 2)
    meet(folder, x, 1)
    if x == 0:
        try:
            filled(3 * limit)
        except ResourceExhaustedError:
            Path(folder, "refused").touch()
            raise
    wait_for(Path(folder, "refused"))
    return {"y": filled(limit // 2)}


def one_after_another(x: int) -> dict[str, float]:
    """A trial that needs most of a slice, which has most of the GPU."""
    return {"y": filled(limit_mib() * 3 // 4)}


def illegal_address(x: int, folder: str) -> dict[str, float]:
    """Trial 0 writes to an illegal address of the GPU while trial 1 uses it; later trials only use it."""
    filled(64)
    if x > 1:
        return {"y": 1.0}
    meet(folder, x, 1)
    if x == 0:
        status = write_to_illegal_address()
        Path(folder, "status").write_text(str(status))
        Path(folder, "broken").touch()
        filled(64)  # TensorFlow finds its context broken: it raises, or ends the process
        raise RuntimeError(f"CUDA error {status} left TensorFlow as it was")
    wait_for(Path(folder, "broken"))
    return {"y": filled(64)}


def write_to_illegal_address() -> int:
    """Run a kernel that writes where no memory is, in TensorFlow's context; the status that CUDA returns."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel, number = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int())

    def checked(status: int, call: str) -> None:
        assert status == 0, f"{call} returned {status}"

    checked(cuda.cuInit(0), "cuInit")
    checked(cuda.cuDeviceGet(ctypes.byref(number), 0), "cuDeviceGet")
    checked(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "cuDevicePrimaryCtxRetain")
    checked(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    checked(cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(_STORE_AT_16)), "cuModuleLoadData")
    checked(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"store_at_16"), "cuModuleGetFunction")
    grid = [ctypes.c_uint(1)] * 6
    checked(cuda.cuLaunchKernel(kernel, *grid, ctypes.c_uint(0), None, None, None), "cuLaunchKernel")
    return int(cuda.cuCtxSynchronize())


def learn_on_gpu(folder: str, kill_at: int | None, ctx: Any, memory: str | None = None, every: int = 4) -> float:
    """A training of `tests.faults.learning` with its variables on the GPU."""
    import tensorflow as tf

    assert device() is not None
    assert "GPU" in tf.Variable(tf.ones([4])).device
    return learn(folder, kill_at, None, ctx, memory=memory, every=every, dropout=0.0)


def held(x: int, folder: str, ctx: Any) -> float:
    """A trial that holds memory of the GPU while FOLDER/hold exists."""
    filled(256)
    Path(folder, f"start-{x}-{ctx.generation}-{os.getpid()}").touch()
    while Path(folder, "hold").exists():
        filled(256)
        pause(0.02)
    return float(x)


def hold(folder: Path) -> list[Any]:
    """A driver of two such trials."""
    result = st.sweep(
        held, {"x": [0, 1], "folder": [str(folder)]}, metric="y", mode="max", spark=st.local(slots=2), name=NAME,
        dir=str(folder / "runs"), gpu_memory="2GiB", progress=False,
    )  # fmt: skip
    return [[each.status, each.metrics.get("y")] for each in result.trials]
