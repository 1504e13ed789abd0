"""A member that trains by parameter servers, in one process with them: it computes what Keras alone computes."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from msgspec.structs import replace

from sparktrain.base.threads import spawn
from sparktrain.config.gang_spec import Role
from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import RingError, SpecError
from sparktrain.protocol.certificates import RunCertificates, issue
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.keras.distributed_optimizer import distribute
from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import keras_rule
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import LivePlaces, PsModel
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_ring import PsRing
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_server import ShardServer

OTHER_COUNTS = pytest.mark.all(
    case="other combinations of servers with steps between averages, and with graphs", covered_by="half of them"
)

EQUAL = 1e-6


@pytest.fixture(scope="module")
def certificates() -> RunCertificates:
    return issue("a-run")


class Servers:
    """Some servers, and members that train by them."""

    def __init__(
        self, certificates: RunCertificates, count: int, workers: int = 1, mode: ServerMode = ServerMode.ASYNC
    ) -> None:
        here = Endpoint("127.0.0.1", 0)
        self.keys = ServerKeys(ServerSettings(mode, workers), certificates.server, certificates.agent)
        self.servers = [ShardServer(here, certificates.server, keras_rule) for _ in range(count)]
        roles = [Role.CHIEF, *[Role.WORKER] * (workers - 1), *[Role.PS] * count]
        ports = [0] * workers + [each.endpoint.port for each in self.servers]
        self.places = tuple(
            MemberAddress("here", "127.0.0.1", port, role) for port, role in zip(ports, roles, strict=True)
        )
        self.moved: dict[int, MemberAddress] = {}
        self.members: list[PsModel] = []

    def move(self, certificates: RunCertificates, number: int) -> None:
        """Start a successor of a server elsewhere; the old one stays."""
        self.servers.append(ShardServer(Endpoint("127.0.0.1", 0), certificates.server, keras_rule))
        rank = len(self.places) - (len(self.servers) - 1) + number
        self.moved[rank] = replace(self.places[rank], port=self.servers[-1].endpoint.port)

    def member(self, rank: int = 0, *, slow_s: float = 10.0) -> PsModel:
        places = LivePlaces(Formation(rank, self.places), self.moved.get)
        made = PsModel(places, self.keys, 0, slow_s=slow_s, answer_s=5.0)
        self.members.append(made)
        return made

    def close(self) -> None:
        for member in self.members:
            member.close()
        for server in self.servers:
            server.close()


Make = Callable[..., Servers]


@pytest.fixture
def served(certificates: RunCertificates) -> Iterator[Make]:
    made: list[Servers] = []

    def make(*options: Any) -> Servers:
        made.append(Servers(certificates, *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def model_of(optimizer: Any) -> Any:
    """A model with a layer that the loss does not use, and with SGD an embedding with rows that no batch has.

    Other optimizers of Keras take a row that occurs twice in a batch for two rows.
    """
    keras.utils.set_random_seed(5)
    words = keras.Input((3,), dtype="int32")
    first = keras.layers.Embedding(11, 4) if type(optimizer) is keras.optimizers.SGD else keras.layers.Dense(4)
    embedded = keras.layers.Flatten()(first(words))
    model = keras.Model(words, [keras.layers.Dense(2)(embedded), keras.layers.Dense(1)(embedded)])
    model.compile(optimizer, ["mse", None], jit_compile=False)
    return model


def rows() -> tuple[Any, Any]:
    drawn = np.random.default_rng(1)
    return drawn.integers(0, 7, (32, 3)).astype("int32"), drawn.normal(size=(32, 2)).astype("float32")


def step_of(model: Any) -> Callable[[Any, Any], None]:
    """A step in a loop of the user's own."""

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x)[0] - y) ** 2)
        gradients = tape.gradient(loss, [each.value for each in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)

    return step


def trained(model: Any, *, graph: bool = True) -> Any:
    """The weights after some steps."""
    step, (x, y) = step_of(model), rows()
    step = tf.function(step) if graph else step
    for start in range(0, 32, 8):
        step(tf.constant(x[start : start + 8]), tf.constant(y[start : start + 8]))
    return [each.numpy() for each in model.trainable_variables]


def two_begun(gang: Servers) -> tuple[PsModel, PsModel, list[Any]]:
    """The chief and a worker of `gang` that train, and their models."""
    members, models = [gang.member(rank) for rank in range(2)], [model_of(keras.optimizers.SGD(0.1)) for _ in range(2)]
    for member, model in zip(members, models, strict=True):
        member.start(model.optimizer, model.trainable_variables)
    return *members, models


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # for the layer without a loss
@pytest.mark.parametrize(
    ("servers", "graph"),
    [(1, False), (3, True), pytest.param(1, True, marks=OTHER_COUNTS), pytest.param(3, False, marks=OTHER_COUNTS)],
)
@pytest.mark.parametrize(
    "optimizer",
    [lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda: keras.optimizers.Adam(0.01, clipnorm=0.1)],
    ids=["sgd", "clipped adam"],
)
def test_a_loop_trains_what_keras_alone_trains(served: Make, optimizer: Any, servers: int, graph: bool) -> None:
    gang = served(servers)
    model = model_of(distribute(optimizer(), PsRing(0, gang.member())))
    if not graph:
        gang.members[0].start(model.optimizer, model.trainable_variables)
    for got, expected in zip(trained(model, graph=graph), trained(model_of(optimizer()), graph=graph), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=EQUAL)
    assert int(model.optimizer.iterations.numpy()) == 4


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_server_that_has_moved_continues_while_the_old_one_still_answers(
    served: Make, certificates: RunCertificates
) -> None:
    """As when the host of the old one is cut off from the coordinator alone. One push has gradients for the old one."""
    gang = served(2)
    model = model_of(distribute(keras.optimizers.SGD(0.1), PsRing(0, gang.member())))
    step, (x, y) = tf.function(step_of(model)), rows()
    for start in range(0, 32, 8):
        if start == 16:
            gang.move(certificates, 1)
        step(tf.constant(x[start : start + 8]), tf.constant(y[start : start + 8]))
    assert [each.client.version for each in gang.members[0]._shards] == [4, 3]
    gang.servers[1].close()
    step(tf.constant(x[:8]), tf.constant(y[:8]))
    assert [each.client.version for each in gang.members[0]._shards] == [5, 4]


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_an_eager_first_step_is_refused(served: Make) -> None:
    model = model_of(distribute(keras.optimizers.SGD(0.1), PsRing(0, served(1).member())))
    with pytest.raises(SpecError, match=r"compute steps in a tf\.function"):
        trained(model, graph=False)


def test_a_second_optimizer_is_refused(served: Make) -> None:
    member = served(1).member()
    first, second = (model_of(keras.optimizers.SGD(0.1)) for _ in range(2))
    member.start(first.optimizer, first.trainable_variables)
    with pytest.raises(SpecError, match="one model with one optimizer"):
        member.start(second.optimizer, second.trainable_variables)
    with pytest.raises(SpecError, match="distributed already"):
        distribute(distribute(first.optimizer, PsRing(0, member)), PsRing(0, member))


def test_all_members_start_with_the_variables_of_the_chief(served: Make) -> None:
    gang = served(2, 2)
    chief, worker = model_of(keras.optimizers.SGD(0.1)), model_of(keras.optimizers.SGD(0.1))
    worker.set_weights([each + 1 for each in worker.get_weights()])
    other = spawn(lambda: gang.member(1).start(worker.optimizer, worker.trainable_variables), "worker")
    gang.member(0).start(chief.optimizer, chief.trainable_variables)
    other.join(10)
    for ours, theirs in zip(chief.get_weights(), worker.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_chief_waits_for_the_last_steps_of_the_others(served: Make) -> None:
    chief, worker, models = two_begun(served(1, 2))
    ending = spawn(lambda: chief.end(1, stops=False), "chief")
    gradients = [np.ones(each.shape, np.float32) for each in models[1].trainable_variables]
    last = worker.step(0.1, *gradients)
    assert ending.is_alive()
    worker.end(1, stops=False)
    ending.join(10)
    assert not ending.is_alive()
    for variable, value in zip(models[0].trainable_variables, last, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_member_that_never_ends_is_named(served: Make) -> None:
    gang = served(1, 3)
    chief, model = gang.member(0, slow_s=0.3), model_of(keras.optimizers.SGD(0.1))
    chief.start(model.optimizer, model.trainable_variables)
    with pytest.raises(RingError, match=r"rank 1, 2 trained no step for 0\.3 s after the chief's last"):
        chief.end(1, stops=False)


def test_one_member_stops_the_others_in_this_fit_alone(served: Make) -> None:
    chief, worker, models = two_begun(served(1, 2))
    worker.end(1, stops=True)
    gradients = [np.ones(each.shape, np.float32) for each in models[0].trainable_variables]
    chief.step(0.1, *gradients)
    assert chief.stopped
    chief.end(1, stops=True)
    chief.start(models[0].optimizer, models[0].trainable_variables, fit=2)
    assert not chief.stopped


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_restored_gang_has_the_history_of_its_optimizer(served: Make) -> None:
    first = served(2)
    model = model_of(distribute(keras.optimizers.Adam(0.01), PsRing(0, first.member())))
    trained(model)
    saved = first.members[0].saved()
    weights = model.get_weights()
    expected = trained(model)

    again = model_of(distribute(keras.optimizers.Adam(0.01), PsRing(0, (second := served(2)).member())))
    again.set_weights(weights)
    second.members[0].restore(saved)
    for got, wanted in zip(trained(again), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=EQUAL)


def test_another_number_of_servers_starts_without_the_history(served: Make, capsys: pytest.CaptureFixture[str]) -> None:
    member, model = served(2).member(), model_of(keras.optimizers.SGD(0.1))
    member.start(model.optimizer, model.trainable_variables)
    other = served(1).member()
    other.restore(member.saved())
    other.start(model.optimizer, model.trainable_variables)
    assert "of a gang with ps=2, and this one has ps=1" in "".join(capsys.readouterr())


def local_ring(member: PsModel, steps: int) -> PsRing:
    ring = PsRing(0, member)
    ring.local_steps = steps
    return ring


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize(
    ("servers", "steps"),
    [(1, 3), (3, 1), pytest.param(1, 1, marks=OTHER_COUNTS), pytest.param(3, 3, marks=OTHER_COUNTS)],
)
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=2.0**8),
    ],
    ids=["clipped adam", "scaled sgd"],
)
def test_the_only_member_of_local_sgd_trains_what_keras_alone_trains(
    served: Make, optimizer: Any, steps: int, servers: int
) -> None:
    member = served(servers, 1, ServerMode.LOCAL_SGD).member()
    model = model_of(distribute(optimizer(), local_ring(member, steps)))
    for got, expected in zip(trained(model), trained(model_of(optimizer())), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_members_of_local_sgd_add_their_part_of_what_they_have_trained(served: Make) -> None:
    chief, worker, models = two_begun(served(2, 2, ServerMode.LOCAL_SGD))
    start = [each.numpy() for each in models[0].trainable_variables]

    first = chief.exchange(*[each + 2.0 for each in start])
    second = worker.exchange(*[each + 4.0 for each in start])
    third = chief.exchange(*[each - 6.0 for each in first])
    for base, *found in zip(start, first, second, third, strict=True):
        for each, added in zip(found, (1.0, 3.0, 0.0), strict=True):
            np.testing.assert_allclose(each, base + added, rtol=0, atol=EQUAL)


def test_a_save_gives_the_chief_what_others_have_pushed_and_no_part_counts_twice(served: Make) -> None:
    chief, worker, models = two_begun(served(1, 2, ServerMode.LOCAL_SGD))
    start = [each.numpy() for each in models[0].trainable_variables]
    worker.exchange(*[each + 4.0 for each in start])

    chief.saved()
    after = [each.numpy() for each in models[0].trainable_variables]
    found = chief.exchange(*[each + 2.0 for each in after])
    for base, saved, each in zip(start, after, found, strict=True):
        np.testing.assert_allclose(saved, base + 2.0, rtol=0, atol=EQUAL)
        np.testing.assert_allclose(each, base + 3.0, rtol=0, atol=EQUAL)


def test_a_member_that_trains_in_place_does_not_change_what_it_compares_with(served: Make) -> None:
    """TensorFlow may take over the memory of what was pulled, and train on in it."""
    gang = served(1, 2, ServerMode.LOCAL_SGD)
    worker = gang.member(1)
    model, other = model_of(keras.optimizers.SGD(0.1)), model_of(keras.optimizers.SGD(0.1))
    gang.member(0).start(model.optimizer, model.trainable_variables)
    worker.start(other.optimizer, other.trainable_variables)
    pulled = worker.exchange(*[each.numpy() for each in other.trainable_variables])
    start = [each.copy() for each in pulled]
    for each in pulled:
        each += 2.0
    for base, found in zip(start, worker.exchange(*pulled), strict=True):
        np.testing.assert_allclose(found, base + 1.0, rtol=0, atol=EQUAL)


def test_averages_of_weights_are_refused_in_local_sgd(served: Make) -> None:
    member = served(1, 1, ServerMode.LOCAL_SGD).member()
    with pytest.raises(SpecError, match="use_ema=True"):
        distribute(keras.optimizers.SGD(0.1, use_ema=True), local_ring(member, 2))
