"""Imports Keras on JAX: see `backend_import`."""

from sparktrain.config.environment import JAX
from sparktrain.training.frameworks.keras.preloads.backend_import import import_keras

import_keras(JAX)
