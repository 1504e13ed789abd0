"""Params of the stages: types, ranges, names, and what excludes each other. No Spark runs."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.param import TypeConverters

import sparktrain as st
from sparktrain.cluster.dataframes.ml_params import StageParams, stage_param
from sparktrain.ml import EstimatorParams, KerasEstimator, KerasModel, ModelParams
from sparktrain.ml.keras_estimator import columns_of
from tests.spark import keras_stages


def estimator(**params: Any) -> KerasEstimator:
    return KerasEstimator(keras_stages.build, **params)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"epoch": 3}, st.SpecError, "KerasEstimator has no param 'epoch'; did you mean 'epochs'"),
        ({"epochs": "3"}, TypeError, 'Invalid param value given for param "epochs"'),
        ({"epochs": True}, TypeError, "pass an int"),
        ({"epochs": 0}, st.SpecError, r"epochs \(0\) must be at least 1"),
        ({"predictBatchSize": 0}, st.SpecError, r"predictBatchSize \(0\) must be at least 1"),
        ({"inputCols": "a"}, TypeError, "list of strings"),
        ({"inputCols": []}, st.SpecError, "name at least one column"),
        ({"inputCols": ["a", "a"]}, st.SpecError, "names 'a' twice"),
        ({"weightCol": " "}, st.SpecError, "is empty"),
        ({"validationSplit": 1.0}, st.SpecError, "from 0 to below 1"),
        ({"learningRate": -1.0}, st.SpecError, "above 0 and finite"),
        ({"backend": "horovodd"}, st.SpecError, "did you mean 'horovod'"),
        ({"dir": 3}, st.SpecError, "a path or URL is expected"),
        ({"namePrefix": "a b"}, st.SpecError, "use 'a-b'"),
        ({"namePrefix": "a" * 120}, st.SpecError, "96 are the most"),
        ({"modelParams": [1]}, TypeError, "a dict is expected"),
        ({"modelParams": {"units": object()}}, st.SpecError, r"modelParams\['units'\] holds"),
        ({"modelParams": {"a b": 1}}, st.SpecError, "cannot be the name of a parameter"),
        ({"runOptions": {"workers": 2}}, st.SpecError, "has 'workers', which the stage sets itself: set workers="),
        ({"runOptions": {"max_retry": 2}}, st.SpecError, "no option of sparktrain.run; did you mean 'max_retries'"),
        ({"runOptions": {"max_retries": print}}, st.SpecError, "runOptions\\['max_retries'\\] holds"),
        ({"customModules": "layers"}, TypeError, "list of strings"),
        ({"loss": 3}, TypeError, "loss"),
    ],
)
def test_a_wrong_param_is_refused_when_it_is_set(params: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        estimator(**params)


def test_each_param_has_a_keyword_a_setter_and_a_getter() -> None:
    for made, keywords in ((estimator(), EstimatorParams), (KerasModel(), ModelParams)):
        assert {each.name for each in made.params} == set(keywords.__annotations__) | set(ModelParams.__annotations__)
        for each in made.params:
            ending = each.name[0].upper() + each.name[1:]
            assert callable(getattr(made, f"set{ending}"))
            assert callable(getattr(made, f"get{ending}"))
    assert estimator().setEpochs(3).setBatchSize(5).getEpochs() == 3
    assert estimator().setEpochs.__doc__ == "Set epochs: passes over the rows."


def test_params_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(st.SpecError, match="both choose the validation data"):
        columns_of(estimator(validationSplit=0.1, validationIndicatorCol="held"))
    with pytest.raises(st.SpecError, match="featuresCol and inputCols are both set"):
        columns_of(estimator(featuresCol="x", inputCols=["a"]))
    with pytest.raises(st.SpecError, match="'label' is a column of the features too"):
        columns_of(estimator(inputCols=["a", "label"]))


def test_columns_become_one_tensor_or_inputs_by_name() -> None:
    assert columns_of(estimator(featuresCol="x")).of_batch()["feature_columns"] == "x"
    several = columns_of(estimator(inputCols=["a", "b"], weightCol="w")).of_batch()
    assert several == {"feature_columns": ["a", "b"], "label_columns": "label", "weight_column": "w", "stack": True}
    assert columns_of(estimator(inputCols=["a", "b"], stackInputs=False)).of_batch()["stack"] is False
    assert columns_of(estimator(inputCols=["a"])).of_batch()["stack"] is False


def test_a_copy_has_the_values_of_a_param_map_and_the_function() -> None:
    first = estimator(epochs=2, modelParams={"units": 3})
    copied = first.copy({first.epochs: 5})
    assert (copied.getEpochs(), first.getEpochs()) == (5, 2)
    assert copied.getModelParams() == {"units": 3}
    assert copied.uid == first.uid
    assert copied._function.function is keras_stages.build


def test_a_model_without_a_file_names_the_next_step() -> None:
    with pytest.raises(st.SpecError, match="this KerasModel has no model: pass model_path="):
        KerasModel().load_model()


def test_a_model_that_is_gone_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(st.MissingFileError, match=r"gone.keras is gone: save a KerasModel before"):
        KerasModel(tmp_path / "gone.keras").write()


def test_a_subclass_has_accessors_for_params_of_its_own() -> None:
    class Own(StageParams):
        hidden_units = stage_param("units of a layer", TypeConverters.toInt)
        tfrecord_dir = stage_param("a folder", TypeConverters.toString)

    own = Own()
    assert [param.name for param in own.params] == ["hidden_units", "tfrecord_dir"]
    assert own.setHiddenUnits(8).getHiddenUnits() == 8
    assert own.setTFRecordDir("a").getTFRecordDir() == "a"
    with pytest.raises(TypeError, match="hidden_units"):
        own.setHiddenUnits("many")
