"""A member that is a parameter server: it serves its shard until its process ends. Imports Keras."""

from collections.abc import Callable
from typing import NoReturn

from sparktrain.errors import FormError
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.state.topology import Formation
from sparktrain.training.frameworks.tensorflow.parameter_server.keras_rule import keras_rule
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_server import ShardServer


def serve_shard(formation: Formation, keys: ServerKeys, release_port: Callable[[], None]) -> NoReturn:
    """Serve at this member's port. Blocks until its agent ends the process. Raises FormError when the port is taken."""
    place = formation.mine
    server = ShardServer(Endpoint(place.address, place.port), keys.server, keras_rule)
    release_port()
    server.join()
    raise FormError(f"the parameter server at {server.endpoint} ended by itself")
