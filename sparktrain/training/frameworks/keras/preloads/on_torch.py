"""Imports Keras on PyTorch: see `backend_import`."""

from sparktrain.config.environment import TORCH
from sparktrain.training.frameworks.keras.preloads.backend_import import import_keras

import_keras(TORCH)
