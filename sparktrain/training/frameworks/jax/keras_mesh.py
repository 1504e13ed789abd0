"""`keras.distribution` in a gang: a mesh that does not fit its members raises an error before it trains."""

import functools
import math
from typing import Any

import jax

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.errors import SpecError
from sparktrain.state.topology import Formation


def check_meshes(formation: Formation) -> None:
    """Check the meshes of `keras.distribution` in this process, also where Keras is imported later."""
    patch_when_imported("keras.src.distribution.distribution_lib", functools.partial(_check_in, formation=formation))


def _check_in(library: Any, formation: Formation) -> None:
    create = library.DeviceMesh.__init__
    arrange = library.Distribution.__init__

    @functools.wraps(create)
    def init(mesh: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        if devices is None and shape and math.prod(shape) != jax.device_count():
            raise SpecError(f"DeviceMesh(shape={tuple(shape)}) {_misfit(math.prod(shape), formation)}")
        create(mesh, shape, axis_names, devices)

    @functools.wraps(arrange)
    def distribute(distribution: Any, device_mesh: Any, *args: Any, **options: Any) -> None:
        count = len({str(device) for device in device_mesh.devices.flatten()})
        if count != jax.device_count():
            kind = type(distribution).__name__
            raise SpecError(f"the mesh of keras.distribution.{kind} {_misfit(count, formation)}")
        arrange(distribution, device_mesh, *args, **options)

    library.DeviceMesh.__init__ = init
    library.Distribution.__init__ = distribute


def _misfit(count: int, formation: Formation) -> str:
    total = jax.device_count()
    return (
        f"has {count} devices, and the gang has {total} ({formation.size} members with {total / formation.size:g} "
        "each): a mesh has the devices of all members, as keras.distribution.list_devices() returns them; change its "
        "shape, or the number of workers"
    )
