"""Which modules an import of Horovod's names finds."""

import pytest

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.tensorflow.horovod_names import import_hook


@pytest.mark.parametrize("parent", ["horovod.keras", "horovod.tensorflow.keras"])
def test_the_modules_for_keras_are_replaced(parent: str) -> None:
    finder = import_hook._hook()
    for name in (parent, f"{parent}.callbacks"):
        spec = finder.find_spec(name, None)
        assert spec is not None
        assert type(spec.loader).__name__ == "_FillingLoader"
    assert finder.find_spec(f"{parent}.other", None) is None
    assert finder.find_spec("horovod", None) is None


def test_names_outside_of_a_training_function_say_where_to_call_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_hook._Current, "gang", None)
    with pytest.raises(SpecError, match=r"hvd.init\(\) was called before .*: call it in the training function"):
        import_hook.current_ring("hvd.init()")
