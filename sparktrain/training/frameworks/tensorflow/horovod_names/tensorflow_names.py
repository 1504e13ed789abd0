"""The names of `horovod.tensorflow` that Keras 3 and a gang need to differ from Horovod's own."""

import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import keras
import tensorflow as tf
from keras.src.trainers.trainer import Trainer

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import is_distributed
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.keras.glue import prepare_keras
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.horovod_names.import_hook import current_formation, current_ring
from sparktrain.training.frameworks.tensorflow.optimizers.optimizer import distribute_tape

_ALONE = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
"""The environment in which Horovod's operations work in a process without a gang."""
_WIDTHS = {"NoneCompressor": "none", "FP16Compressor": "fp16"}
_OF_SESSIONS = "is for sessions of TensorFlow 1: write hvd.broadcast_variables(model.variables, root_rank=0)"
_WITHOUT_EFFECT = {
    "name",
    "use_locking",
    "device_dense",
    "device_sparse",
    "sparse_as_dense",
    "gradient_predivide_factor",
    "num_groups",
    "groups",
    "scale_local_gradients",
    "average_aggregated_gradients",
}
"""Options that change how gradients travel, and not their mean."""


def init(*arguments: object, **options: object) -> None:
    """Connect this process to its gang, which blocks until all members do; in a gang of one, Horovod to itself.

    Raises SpecError for process sets and communicators, outside of a training function, and in a gang of another
    backend; FormError.
    """
    extras = [argument for argument in (*arguments, *options.values()) if argument is not None]
    if extras:
        raise SpecError(
            f"hvd.init() was given {described(extras[0])}, and the ring has all members of the gang: call it without "
            "arguments"
        )
    if current_ring("hvd.init()").size == 1:
        from horovod.tensorflow import mpi_ops  # its own package is being imported when this module is

        for name, value in _ALONE.items():
            os.environ.setdefault(name, value)
        mpi_ops.init()


def shutdown() -> None:
    """In a gang of one, end what `init` has started. Else do nothing: the ring ends when all members have returned."""
    if current_ring("hvd.shutdown()").size == 1:
        from horovod.tensorflow import mpi_ops  # as above

        mpi_ops.shutdown()


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0, *_: object, **options: object) -> None:
    """Give all members the chief's values of `variables`, of Keras or TensorFlow. Blocks until all members call it.

    Raises SpecError for another root than rank 0.
    """
    from_chief(root_rank, "broadcast_variables")
    assign_all(current_ring("hvd.broadcast_variables()"), list(variables), "broadcast_variables")


def assign_all(ring: Ring, variables: list[Any], name: str) -> None:
    """Assign the chief's values to the variables. All members call it; it blocks until they do."""
    if ring.size == 1 or not variables:
        return
    plain = [target.value if isinstance(target, keras.Variable) else target for target in variables]
    values = ring.broadcast([tf.convert_to_tensor(tf_variable) for tf_variable in plain], name=name)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def DistributedOptimizer(optimizer: Any, *arguments: object, **options: Any) -> Any:  # Horovod's name
    """Make a Keras 3 optimizer average its gradients over all members; returns `optimizer` itself.

    As `ctx.distribute`. Raises SpecError for options that would change what is trained.
    """
    ring = current_ring("hvd.DistributedOptimizer()")
    width = _width(arguments, options, "DistributedOptimizer")
    if ring.local_steps is not None:
        raise SpecError(
            f"hvd.DistributedOptimizer() with local_steps={ring.local_steps}: programs for Horovod average gradients, "
            "and save without an average before; use ctx.distribute() and ctx.keras_callbacks(), or leave local_steps "
            "out"
        )
    # Horovod's own accepts an optimizer of Keras 3 and then reduces nothing, without an error, because it overrides
    # methods that Keras no longer calls: weights of two members were 0.14 apart after two epochs of Adam.
    prepare_keras(ring)
    replace(Trainer, "compile", _compiled)
    return distribute(optimizer, ring, compression=width)


def DistributedGradientTape(gradtape: Any, *arguments: object, **options: Any) -> Any:  # Horovod's name
    """Wrap a tape so that `gradient()` averages over all members, also for Keras variables: `ctx.distribute_tape`."""
    ring = current_ring("hvd.DistributedGradientTape()")
    width = _width(arguments, options, "DistributedGradientTape")
    prepare_keras(ring)
    return distribute_tape(gradtape, ring, compression=width)


def from_chief(root_rank: int, name: str) -> None:
    """Raise SpecError for a root that is not the chief."""
    if root_rank != 0:
        raise SpecError(f"hvd.{name}: root_rank is {described(root_rank)}, and the chief has the values: pass 0")


def _width(arguments: tuple[object, ...], options: dict[str, Any], name: str) -> str:
    """The compression, after a check of all options."""
    import horovod.tensorflow as hvd

    if arguments:
        raise SpecError(f"hvd.{name}: pass options by name; {described(arguments[0])} came without one")
    remaining = dict(options)
    compression = remaining.pop("compression", None)
    width = _WIDTHS.get(getattr(compression, "__name__", "NoneCompressor"))
    if width is None:
        raise SpecError(f"hvd.{name}: compression is {described(compression)}; hvd.Compression has none and fp16")
    if (op := remaining.pop("op", hvd.Average)) != hvd.Average:
        raise SpecError(
            f"hvd.{name}: op is {_spelled(op)}, and members average their gradients: leave it out, and choose the "
            "learning rate for the mean"
        )
    if (passes := remaining.pop("backward_passes_per_step", 1)) != 1:
        raise SpecError(
            f"hvd.{name}: backward_passes_per_step is {described(passes)}: write gradient_accumulation_steps={passes} "
            "in the Keras optimizer"
        )
    if (group := remaining.pop("process_set", hvd.global_process_set)) is not hvd.global_process_set:
        raise SpecError(f"hvd.{name}: process_set is {described(group)}: the ring has all members of the gang")
    if unknown := sorted(remaining.keys() - _WITHOUT_EFFECT):
        raise TypeError(f"hvd.{name} got an unexpected keyword argument {unknown[0]!r}")
    return width


def _spelled(op: Any) -> str:
    """An operation of Horovod as programs write it."""
    import horovod.tensorflow as hvd

    names = ("Sum", "Adasum", "Min", "Max", "Product")
    return next((f"hvd.{name}" for name in names if getattr(hvd, name) == op), described(op))


def _compiled(plain: Any) -> Any:
    def compile(model: Any, *arguments: Any, **options: Any) -> None:
        """As Keras, for programs of Keras 2 and of a ring: XLA cannot compile collectives."""
        options.pop("experimental_run_tf_function", None)
        plain(model, *arguments, **options)
        if is_distributed(model.optimizer):
            model.jit_compile = False

    return compile


def broadcast_global_variables(*_: object, **__: object) -> NoReturn:
    """Raises SpecError: TensorFlow 2 has no list of all variables."""
    raise SpecError(f"hvd.broadcast_global_variables {_OF_SESSIONS}")


def BroadcastGlobalVariablesHook(*_: object, **__: object) -> NoReturn:  # Horovod's name
    """Raises SpecError: TensorFlow 2 has no hooks of sessions."""
    raise SpecError(f"hvd.BroadcastGlobalVariablesHook {_OF_SESSIONS}")


def _number(name: str) -> Callable[[], int]:
    """A function such as `hvd.rank`, which needs no connection."""

    def number() -> int:
        value: int = getattr(current_formation(f"hvd.{name}()"), name)
        return value

    return number


REPLACED: dict[str, Any] = {
    replacement.__name__: replacement
    for replacement in (
        init,
        shutdown,
        broadcast_variables,
        broadcast_global_variables,
        BroadcastGlobalVariablesHook,
        DistributedOptimizer,
        DistributedGradientTape,
    )
} | {name: _number(name) for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")}
"""What the names stand for in Horovod's module."""
