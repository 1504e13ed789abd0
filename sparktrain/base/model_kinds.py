"""What messages call the models and optimizers of users, by their classes. Imports no framework."""

from collections.abc import Sequence

KERAS_MODEL = "a Keras model"
KERAS_OPTIMIZER = "a Keras optimizer"
TORCH_MODEL = "a model of PyTorch"

_KINDS = {
    ("keras", "Model"): KERAS_MODEL,
    ("keras", "BaseOptimizer"): KERAS_OPTIMIZER,
    ("keras", "Layer"): "a Keras layer",
    ("torch", "Optimizer"): "an optimizer of PyTorch",
    ("torch", "LRScheduler"): "a schedule of PyTorch",
    ("torch", "GradScaler"): "a gradient scaler of PyTorch",
    ("torch", "Module"): TORCH_MODEL,
    ("torch", "Tensor"): "a tensor of PyTorch",
    ("tensorflow", "GradientTape"): "a tape of TensorFlow",
    ("optax", "GradientTransformation"): "an optimizer of optax, for JAX",
    ("flax", "Module"): "a model of flax, for JAX",
    ("jaxlib", "ArrayImpl"): "an array of JAX",
}
"""The name of a kind, by package and class: of the object's class, or of one that it inherits from. The first counts: a
layer of Keras on PyTorch is a module, too."""


def kind_of(value: object) -> str | None:
    """The kind of an object of a framework, such as "a Keras model"; None for any other object."""
    classes = {(base.__module__.partition(".")[0], base.__name__) for base in type(value).__mro__}
    return next((kind for key, kind in _KINDS.items() if key in classes), None)


def named_kind(value: object) -> str:
    """`a Keras model (Sequential)`, for messages; of other objects the type."""
    kind = kind_of(value)
    name = type(value).__name__
    return f"{kind} ({name})" if kind is not None else f"an object of type {type(value).__module__}.{name}"


def named_kinds(values: Sequence[object]) -> str:
    """The same of several objects."""
    *first, last = map(named_kind, values)
    return f"{', '.join(first)} and {last}" if first else last
