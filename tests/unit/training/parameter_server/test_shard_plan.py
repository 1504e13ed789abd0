"""Every element of every variable is on exactly one server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import ALIGNMENT, VariableSpec, plan_shards

SHAPES = st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), min_size=1, max_size=8)
DTYPES = st.sampled_from(["float32", "float64", "float16"])


def variables(shapes: list[tuple[int, ...]], dtype: str = "float32") -> list[VariableSpec]:
    return [VariableSpec(f"v{index}", shape, dtype) for index, shape in enumerate(shapes)]


@given(SHAPES, DTYPES, st.integers(1, 5), st.booleans())
def test_scatter_and_gather_move_every_element_once(
    shapes: list[tuple[int, ...]], dtype: str, servers: int, sliceable: bool
) -> None:
    specs = variables(shapes, dtype)
    try:
        plan = plan_shards(specs, servers, sliceable=sliceable)
    except SpecError:
        few = sum(each.size for each in specs) if sliceable else sum(each.size > 0 for each in specs)
        assert few < servers
        return
    values = [np.arange(each.size, dtype=dtype).reshape(each.shape) + 1 for each in specs]
    gathered = [np.zeros_like(each) for each in values]
    for shard in range(servers):
        layout = plan.layout(shard)
        buffer = bytearray(layout.nbytes)
        for view, piece in zip(layout.views(buffer), plan.scatter(values, shard), strict=True):
            view[:] = piece
        before = [each.copy() for each in gathered]
        plan.gather(layout.views(buffer), shard, gathered)
        moved = sum(np.count_nonzero(new != old) for new, old in zip(gathered, before, strict=True))
        assert moved == sum(each.stop - each.start for each in plan.shards[shard])
        assert all(offset % ALIGNMENT == 0 for offset in layout.offsets)
    for one, other in zip(gathered, values, strict=True):
        np.testing.assert_array_equal(one, other)


@given(SHAPES, st.integers(1, 5))
def test_sliced_shards_differ_by_one_element(shapes: list[tuple[int, ...]], servers: int) -> None:
    specs = variables(shapes)
    if sum(each.size for each in specs) < servers:
        return
    plan = plan_shards(specs, servers, sliceable=True)
    loads = [sum(each.stop - each.start for each in shard) for shard in plan.shards]
    assert max(loads) - min(loads) <= 1


def test_whole_variables_are_balanced() -> None:
    plan = plan_shards(variables([(7,), (5,), (4,), (2,)]), 2, sliceable=False)
    assert [[each.variable for each in shard] for shard in plan.shards] == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("shapes", "servers", "why"),
    [([], 1, "without variables"), ([(0, 3)], 1, "without variables"), ([(4,)], 0, "ps=0"), ([(2,)], 3, "lower ps")],
)
def test_nothing_to_keep_is_refused(shapes: list[tuple[int, ...]], servers: int, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        plan_shards(variables(shapes), servers, sliceable=True)
