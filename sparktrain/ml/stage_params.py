"""The typed params of the stages, and the keywords that set them."""

from typing import TYPE_CHECKING, Any, Self, TypedDict

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol

from sparktrain.config.param_values import did_you_mean
from sparktrain.config.store_address import DEFAULT_DIR
from sparktrain.errors import SpecError
from sparktrain.ml import param_rules

_RESERVED = {
    "workers": "set workers=",
    "workers_per_trial": "set workers=",
    "backend": "set backend=",
    "dir": "set dir=",
    "name": "set namePrefix=; each fit makes a run of its own",
    "seed": "set seed=",
    "spark": "it is the session of the DataFrame",
    "data": "it is the DataFrame of fit()",
    "metric": "it is the loss",
    "mode": "it is the loss",
}
"""Options of a run that follow from params."""


class ModelParams(TypedDict, total=False):
    """The params of a `KerasModel`, by name."""

    featuresCol: str
    inputCols: list[str]
    stackInputs: bool
    predictionCol: str
    probabilityCol: str
    predictBatchSize: int
    customModules: list[str]
    dir: str


class EstimatorParams(ModelParams, total=False):
    """The params of a `KerasEstimator`, by name."""

    labelCol: str
    weightCol: str
    validationIndicatorCol: str
    validationSplit: float
    modelParams: dict[str, Any]
    batchSize: int
    epochs: int
    shuffle: bool
    seed: int
    optimizer: str
    learningRate: float
    loss: str
    metrics: list[str]
    workers: int
    backend: str
    namePrefix: str
    runOptions: dict[str, Any]


def _param(name: str, doc: str, rule: Any) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=rule)


class KerasModelParams(HasFeaturesCol, HasPredictionCol):
    """The params that estimator and model share. Each has a setter and a getter, such as `setDir` and `getDir`."""

    inputCols = _param("inputCols", "columns of the features, in place of featuresCol", param_rules.columns)
    stackInputs = _param(
        "stackInputs",
        "whether inputCols are numbers side by side for one input of the model; else each is the input of its name",
        TypeConverters.toBoolean,
    )
    probabilityCol = _param(
        "probabilityCol",
        "column for the probabilities of a classifier; predictionCol then has the number of the class",
        param_rules.column,
    )
    predictBatchSize = _param(
        "predictBatchSize", "rows that transform predicts at a time", param_rules.integer("predictBatchSize", 1)
    )
    customModules = _param(
        "customModules",
        "modules to import before the model is loaded, because they register layers of your own",
        TypeConverters.toListString,
    )
    dir = _param(
        "dir", "path or URL that driver and executors share: runs, and files of loaded models", param_rules.directory
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(stackInputs=True, predictBatchSize=1024, customModules=[], dir=DEFAULT_DIR)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the setters and getters

    @property
    def feature_columns(self) -> list[str]:
        """The columns of the features: inputCols, or else featuresCol."""
        inputs = self.getOrDefault("inputCols") if self.isDefined("inputCols") else None
        return list(inputs or [self.getOrDefault("featuresCol")])

    @property
    def stacked(self) -> bool:
        """Whether several columns become one tensor."""
        return len(self.feature_columns) > 1 and bool(self.getOrDefault("stackInputs"))

    def value(self, name: str) -> Any:
        """The value of a param; None when it has none."""
        return self.getOrDefault(name) if self.isDefined(name) else None

    def setParams(self, **params: Any) -> Self:
        """Set params by name. Raises SpecError for an unknown name or a value out of range, TypeError for a type."""
        names = [param.name for param in self.params]
        for name in params:
            if name not in names:
                raise SpecError(
                    f"{type(self).__name__} has no param {name!r}{did_you_mean(name, names) or ';'} its params are "
                    f"{', '.join(names)}"
                )
        self._set(**params)
        return self


class KerasFitParams(KerasModelParams, HasLabelCol):
    """The params of training."""

    weightCol = _param("weightCol", "column with the weights of rows", param_rules.column)
    validationIndicatorCol = _param(
        "validationIndicatorCol", "boolean column: true for rows of the validation data", param_rules.column
    )
    validationSplit = _param(
        "validationSplit",
        "part of the rows that is validation data, chosen by a hash of their values and the seed",
        param_rules.fraction,
    )
    modelParams = _param(
        "modelParams", "arguments of the function by name: hyperparameters", param_rules.hyperparameters
    )
    batchSize = _param("batchSize", "rows of one worker's step", param_rules.integer("batchSize", 1))
    epochs = _param("epochs", "passes over the rows", param_rules.integer("epochs", 1))
    shuffle = _param("shuffle", "whether each epoch has a new order", TypeConverters.toBoolean)
    seed = _param("seed", "seed of weights, order and validationSplit", param_rules.integer("seed", 0))
    optimizer = _param("optimizer", "optimizer of a model that is not compiled", TypeConverters.toString)
    learningRate = _param("learningRate", "learning rate of that optimizer", param_rules.rate)
    loss = _param("loss", "loss of a model that is not compiled", TypeConverters.toString)
    metrics = _param("metrics", "metrics of a model that is not compiled", TypeConverters.toListString)
    workers = _param("workers", "members of the gang that trains each model", param_rules.integer("workers", 1))
    backend = _param("backend", "what connects the members: auto, horovod, tensorflow or none", param_rules.backend)
    namePrefix = _param("namePrefix", "start of the names of runs", param_rules.prefix)
    runOptions = _param("runOptions", "further options of sparktrain.run, by name", param_rules.options(_RESERVED))

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            validationSplit=0.0,
            modelParams={},
            batchSize=32,
            epochs=1,
            shuffle=True,
            seed=0,
            metrics=[],
            workers=1,
            backend="auto",
            namePrefix="keras",
            runOptions={},
        )


def with_accessors(kind: type[Any]) -> type[Any]:
    """The class with `setX` and `getX` for each of its params that lacks them, as Spark's own stages have them."""
    for name in dir(kind):
        param = getattr(kind, name)
        if isinstance(param, Param):
            ending = name[0].upper() + name[1:]
            for accessor in (_setter(ending, param), _getter(ending, param)):
                if not hasattr(kind, accessor.__name__):
                    setattr(kind, accessor.__name__, accessor)
    return kind


def _setter(ending: str, param: Any) -> Any:
    def set_value(self: Any, value: Any) -> Any:
        return self.setParams(**{param.name: value})

    set_value.__name__ = f"set{ending}"
    set_value.__doc__ = f"Set {param.name}: {param.doc}."
    return set_value


def _getter(ending: str, param: Any) -> Any:
    def get_value(self: Any) -> Any:
        return self.getOrDefault(param.name)

    get_value.__name__ = f"get{ending}"
    get_value.__doc__ = f"The value of {param.name}: {param.doc}."
    return get_value
