"""The typed params of the stages, and the keywords that set them."""

from typing import Any, Self, TypedDict

from pyspark.ml.param import TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol

from sparktrain.cluster.dataframes.ml_params import StageParams, stage_param
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


class RowParams(TypedDict, total=False):
    """The params of a `KerasEstimator` about the rows that it trains on and validates with."""

    labelCol: str
    weightCol: str
    validationIndicatorCol: str
    validationSplit: float


class FitParams(TypedDict, total=False):
    """The params of a `KerasEstimator` about one training."""

    modelParams: dict[str, Any]
    batchSize: int
    epochs: int
    shuffle: bool
    seed: int
    optimizer: str
    learningRate: float
    loss: str
    metrics: list[str]


class EstimatorParams(ModelParams, RowParams, FitParams, total=False):
    """The params of a `KerasEstimator`, by name."""

    workers: int
    backend: str
    namePrefix: str
    runOptions: dict[str, Any]


class KerasModelParams(StageParams, HasFeaturesCol, HasPredictionCol):
    """The params that estimator and model share. Each has a setter and a getter, such as `setDir` and `getDir`."""

    inputCols = stage_param("columns of the features, in place of featuresCol", param_rules.columns)
    stackInputs = stage_param(
        "whether inputCols are numbers side by side for one input of the model; else each is the input of its name",
        TypeConverters.toBoolean,
    )
    probabilityCol = stage_param(
        "column for the probabilities of a classifier; predictionCol then has the number of the class",
        param_rules.column,
    )
    predictBatchSize = stage_param("rows that transform predicts at a time", param_rules.integer("predictBatchSize", 1))
    customModules = stage_param(
        "modules to import before the model is loaded, because they register layers of your own",
        TypeConverters.toListString,
    )
    dir = stage_param(
        "path or URL that driver and executors share: runs, and files of loaded models", param_rules.directory
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(stackInputs=True, predictBatchSize=1024, customModules=[], dir=DEFAULT_DIR)

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

    weightCol = stage_param("column with the weights of rows", param_rules.column)
    validationIndicatorCol = stage_param("boolean column: true for rows of the validation data", param_rules.column)
    validationSplit = stage_param(
        "part of the rows that is validation data, chosen by a hash of their values and the seed",
        param_rules.fraction,
    )
    modelParams = stage_param("arguments of the function by name: hyperparameters", param_rules.hyperparameters)
    batchSize = stage_param("rows of one worker's step", param_rules.integer("batchSize", 1))
    epochs = stage_param("passes over the rows", param_rules.integer("epochs", 1))
    shuffle = stage_param("whether each epoch has a new order", TypeConverters.toBoolean)
    seed = stage_param("seed of weights, order and validationSplit", param_rules.integer("seed", 0))
    optimizer = stage_param("optimizer of a model that is not compiled", TypeConverters.toString)
    learningRate = stage_param("learning rate of that optimizer", param_rules.rate)
    loss = stage_param("loss of a model that is not compiled", TypeConverters.toString)
    metrics = stage_param("metrics of a model that is not compiled", TypeConverters.toListString)
    workers = stage_param("members of the gang that trains each model", param_rules.integer("workers", 1))
    backend = stage_param("what connects the members: auto, horovod, tensorflow or none", param_rules.backend)
    namePrefix = stage_param("start of the names of runs", param_rules.prefix)
    runOptions = stage_param("further options of sparktrain.run, by name", param_rules.options(_RESERVED))

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
