"""Arrays of JAX in a process that has left the devices on which they were made."""

import subprocess
import sys

PROGRAM = """
import jax
import numpy as np
from sparktrain.training.frameworks.jax import jax_gang
from sparktrain.training.frameworks.jax.jax_loop import moved

plain = jax.numpy.arange(4.0)
placed = jax.device_put(np.arange(4.0), jax.devices()[0])
key = jax.random.key(3)
drawn = np.asarray(jax.random.normal(key, 4))
assert moved(placed) is placed
jax_gang.leave()
assert jax_gang.is_left(placed)
for array in (plain, placed):
    there = moved(array)
    assert not jax_gang.is_left(there)
    assert there.committed == array.committed
    np.testing.assert_array_equal(there, array)
assert not jax_gang.is_left(moved(key))
np.testing.assert_array_equal(jax.random.normal(moved(key), 4), drawn)
values = {"n": 1, "rows": np.ones(2)}
assert jax.tree.map(moved, values)["rows"] is values["rows"]
"""


def test_arrays_move_to_the_present_devices_with_their_values() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
