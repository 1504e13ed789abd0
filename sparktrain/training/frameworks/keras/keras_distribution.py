"""How what Keras trains averages over a gang: see `Framework.distribution`. Imports nothing of Keras by itself."""

from typing import Any

from sparktrain.config.environment import KERAS_BACKEND, TENSORFLOW
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use, check_optimizer
from sparktrain.training.gang_join import JoinedGang
from sparktrain.training.user_lines import named_use


def distribute(optimizer: Any, gang: JoinedGang, *, compression: str = "none") -> Any:
    """See `TrainContext.distribute`, which has the errors."""
    check_optimizer(optimizer, "ctx.distribute()")  # an environment of PyTorch alone has no Keras to import
    from sparktrain.training.frameworks.keras import distributed_optimizer

    return distributed_optimizer.distribute(optimizer, known_ring(gang, "ctx.distribute()"), compression=compression)


def known_ring(gang: JoinedGang, use: str) -> Ring:
    """The ring for `use`, after patching Keras in this process to use it. Raises as `training_ring`."""
    from sparktrain.training.frameworks.keras.glue import prepare_keras

    prepare_keras(ring := training_ring(gang, use))
    return ring


def training_ring(gang: JoinedGang, use: str) -> Ring:
    """The ring for `use`, as of `JoinedGang`. Raises SpecError where Keras runs on another framework than the ring."""
    if not gang.trains and gang.connected and gang.ring.size > 1:
        framework = gang.ring.framework
        if (backend := backend_in_use()) != framework:
            ways = {TENSORFLOW: "backend='horovod' or 'tensorflow'"}.get(backend, f"backend={backend!r}")
            raise SpecError(
                f"{named_use(use, gang.homes)} trains Keras on {backend}, and this gang is connected by {framework}: "
                f"let Keras run on {framework} by env={{'{KERAS_BACKEND}': {framework!r}}}, or pass {ways}"
            )
    return gang.training_ring(use)
