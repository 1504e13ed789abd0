"""Keras's optimizer on servers computes what it computes in one process."""

from typing import Any

import keras
import numpy as np
import pytest

from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import SpecError
from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import (
    KerasRule,
    check_optimizer,
    is_sliceable,
    keras_rule,
    optimizer_bytes,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import ShardPlan, VariableSpec, plan_shards
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import Push, Sender, ShardState

SHAPES = [(5, 3), (3,), (), (2, 2, 2)]
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
OPTIMIZERS = [
    keras.optimizers.SGD(0.1),
    keras.optimizers.SGD(SCHEDULE, momentum=0.9, nesterov=True),
    keras.optimizers.SGD(0.1, clipnorm=0.5),
    keras.optimizers.Adam(0.01, amsgrad=True, clipvalue=0.5),
    keras.optimizers.AdamW(0.01, weight_decay=0.1),
    keras.optimizers.RMSprop(0.01, centered=True),
    keras.optimizers.Nadam(0.01),
    keras.optimizers.Ftrl(0.1),
    keras.optimizers.Lamb(0.01),
    keras.optimizers.Adafactor(0.01),
    keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
]


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [np.asarray(random.normal(size=shape), np.float32) for shape in SHAPES]


def planned(optimizer: Any, servers: int) -> ShardPlan:
    specs = [VariableSpec(f"v{index}", shape, "float32") for index, shape in enumerate(SHAPES)]
    return plan_shards(specs, servers, sliceable=is_sliceable(optimizer))


def alone(optimizer: Any, steps: int) -> list[Any]:
    """The variables after `steps` steps of one process."""
    own = type(optimizer).from_config(optimizer.get_config())
    variables = [keras.Variable(each) for each in arrays(0)]
    own.build(variables)
    for step in range(1, steps + 1):
        own.apply([keras.ops.convert_to_tensor(each) for each in arrays(step)], variables)
    return [np.asarray(each.value) for each in variables]


def rules(optimizer: Any, plan: ShardPlan) -> list[tuple[KerasRule, list[Any]]]:
    made = []
    for shard in range(len(plan.shards)):
        values = [each.copy() for each in plan.scatter(arrays(0), shard)]
        made.append((keras_rule(optimizer_bytes(optimizer, plan, shard), values), values))
    return made


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda each: each.name)
def test_servers_compute_what_one_process_computes(optimizer: Any, servers: int) -> None:
    plan = planned(optimizer, servers)
    there = rules(optimizer, plan)
    for step in range(1, 5):
        for shard, (rule, values) in enumerate(there):
            rule.apply(values, plan.scatter(arrays(step), shard), 1.0)
    gathered = [np.zeros(shape, np.float32) for shape in SHAPES]
    for shard, (_, values) in enumerate(there):
        plan.gather(values, shard, gathered)
    for one, other in zip(gathered, alone(optimizer, 4), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("optimizer", OPTIMIZERS[:4], ids=lambda each: each.name)
def test_a_rule_continues_from_saved_slots(optimizer: Any) -> None:
    plan = planned(optimizer, 1)
    ((rule, values),) = rules(optimizer, plan)
    for step in (1, 2):
        rule.apply(values, plan.scatter(arrays(step), 0), 1.0)
    successor = keras_rule(optimizer_bytes(optimizer, plan, 0), values)
    successor.restore(rule.slots())
    for step in (3, 4):
        successor.apply(values, plan.scatter(arrays(step), 0), 1.0)
    gathered = [np.zeros(shape, np.float32) for shape in SHAPES]
    plan.gather(values, 0, gathered)
    for one, other in zip(gathered, alone(optimizer, 4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_stale_gradient_is_applied_at_a_part_of_the_rate() -> None:
    optimizer = keras.optimizers.SGD(SCHEDULE)
    values = [np.zeros(2, np.float32)]
    plan = plan_shards([VariableSpec("v", (2,), "float32")], 1, sliceable=True)
    rule = keras_rule(optimizer_bytes(optimizer, plan, 0), values)
    server = ShardState(ServerSettings(ServerMode.STALENESS_AWARE, 2), values, rule, term=1)
    expected = 0.0
    for number, staleness in enumerate((0, 1, 2, 3), 1):
        server.push(Push(Sender(0, 0), number, 1, server.version - staleness), [np.ones(2, np.float32)])
        expected -= float(SCHEDULE(number - 1)) / max(1, staleness)
        np.testing.assert_allclose(values[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "servers", "why"),
    [
        (keras.optimizers.SGD(0.1, global_clipnorm=1.0), 2, "pass ps=1"),
        (keras.optimizers.SGD(0.1, use_ema=True), 1, "use_ema"),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), 1, "scales losses"),
        ("sgd", 1, "a Keras 3 optimizer is expected"),
    ],
)
def test_optimizers_that_servers_cannot_have_are_refused(optimizer: Any, servers: int, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check_optimizer(optimizer, servers)


def test_variables_without_weight_decay_are_refused() -> None:
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    with pytest.raises(SpecError, match="exclude_from_weight_decay"):
        check_optimizer(optimizer, 1)


def test_one_server_may_clip_by_the_norm_of_all() -> None:
    check_optimizer(keras.optimizers.SGD(0.1, global_clipnorm=1.0), 1)


def test_a_class_that_the_server_does_not_know_is_named() -> None:
    spec = optimizer_bytes(keras.optimizers.SGD(0.1), planned(keras.optimizers.SGD(), 1), 0)
    unknown = spec.replace(b'"SGD"', b'"Unheard"').replace(b"keras.optimizers", b"elsewhere")
    with pytest.raises(SpecError, match="cannot make the optimizer 'Unheard'"):
        keras_rule(unknown, arrays(0))
