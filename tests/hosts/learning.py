"""What members on several hosts do, and the notes that they leave: all hosts share the file system."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from sparktrain.base.clock import pause


def note(folder: str, name: str) -> None:
    """Write who is here, and when, to a new file."""
    hidden = Path(folder, f".{name}-{os.getpid()}")
    hidden.write_text(f"{socket.gethostname()} {os.getpid()} {time.time()}")
    hidden.rename(Path(folder, name))


def work(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Trials that end when FOLDER/go-X exists."""
    note(folder, f"start-{x}-{ctx.generation}")
    while not Path(folder, f"go-{x}").exists():
        ctx.report(int(time.time() * 100), x=float(x))
        pause(0.05)
    note(folder, f"end-{x}-{ctx.generation}")
    return {"x": float(x), "generation": ctx.generation}


def served(folder: str, ctx: Any) -> dict[str, float]:
    """A fit by a parameter server, which ends when FOLDER/go exists. Its steps are files with their times."""
    import keras
    import numpy as np

    class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            step = int(self.model.optimizer.iterations.numpy())
            note(folder, f"step-{step}")
            pause(0.02)
            self.model.stop_training = Path(folder, "go").exists()

    note(folder, f"server-{ctx.cluster_spec['ps'][0].rpartition(':')[0]}")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse")
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=8)
    history = model.fit(data, epochs=10_000, verbose=0, callbacks=[*ctx.keras_callbacks(), Note()]).history
    return {"first": history["loss"][0], "last": history["loss"][-1]}


def fitted(folder: str, ctx: Any) -> dict[str, float]:
    """A fit in a ring, which ends when FOLDER/go exists. Its steps are files with the process and the time of each."""
    import keras
    import numpy as np

    class Note(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            note(folder, f"step-{ctx.rank}-{int(self.model.optimizer.iterations.numpy())}")
            pause(0.02)
            self.model.stop_training = ctx.rank == 0 and Path(folder, "go").exists()

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    data = ctx.shard((x, x.sum(1, keepdims=True)), batch_size=8)
    model.fit(data, epochs=10_000, verbose=0, callbacks=[*ctx.keras_callbacks(), Note()])
    return {"steps": float(model.optimizer.iterations.numpy())}


def together(folder: str, ctx: Any, steps: int = 0) -> dict[str, float]:
    """A gang that adds up, step by step, for so many steps, and until FOLDER/go exists for the chief."""
    import numpy as np

    restored = ctx.checkpoint.restore()
    step, total = (restored.step, float(restored["total"])) if restored is not None else (0, 0.0)
    note(folder, f"start-{ctx.rank}-{ctx.generation}")
    while step < steps or not ctx.broadcast(np.array(Path(folder, "go").exists())):
        step += 1
        total += float(ctx.allreduce(float(ctx.rank + 1), average=False))
        if ctx.rank == 0 and step % 10 == 0:
            ctx.checkpoint.save(step, total=np.array(total))
        pause(0.02)
    return {"step": float(step), "total": total}
