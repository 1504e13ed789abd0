"""Has a member of a TFCluster accept what programs of 2019 write for Keras, once it is there. Imports no framework."""

from types import ModuleType

from sparktrain.base.patched_imports import patch_when_imported


def accept() -> None:
    """Have Keras 3 accept it in this process: at once where Keras is imported, else right after its import.

    Keras 2 itself, the package `tf_keras`, stays as it is. Call it before the user's function, in a process of its own.
    """
    patch_when_imported("keras", _accept)


def _accept(_: ModuleType) -> None:
    from sparktrain.tensorflowonspark import old_keras  # it needs Keras

    old_keras.accept()
