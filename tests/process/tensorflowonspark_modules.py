"""A program that was written for TensorFlowOnSpark, in a process of its own: `python served.py CASE`."""

import io
import json
import logging
import pickle
import sys
import zipfile
from typing import Any

from sparktrain.errors import SpecError
from sparktrain.tensorflowonspark import dfutil, install
from sparktrain.usercode.serialize import pack


def imports() -> Any:
    install()
    meta_path = len(sys.meta_path)
    install()
    import tensorflowonspark
    import tensorflowonspark.dfutil as same
    from tensorflowonspark import TFManager, util
    from tensorflowonspark.compat import disable_auto_shard
    from tensorflowonspark.marker import __doc__ as reason

    return [
        len(sys.meta_path) - meta_path,
        same is dfutil is tensorflowonspark.dfutil,
        util.__spec__.name,
        pickle.loads(pickle.dumps(disable_auto_shard)) is disable_auto_shard,
        TFManager.__name__,
        reason,
    ]


def refused() -> Any:
    """What imports and attributes that nothing stands for raise."""
    install()
    import tensorflowonspark

    found = []
    for statement in (
        "import tensorflowonspark.nothing",
        "from tensorflowonspark import nothing",
        "tensorflowonspark.TFSparkNode.run",
        "tensorflowonspark.reservation.Client",
        "tensorflowonspark.TFManager.connect",
    ):
        try:
            exec(statement, {"tensorflowonspark": tensorflowonspark})
        except (ImportError, AttributeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def shipped() -> Any:
    def train() -> None:
        from tensorflowonspark import TFNode  # noqa: F401

    before = pack(train).archive
    install()
    return [_names(each) for each in (before, pack(train).archive)]


def late() -> Any:
    import tensorflowonspark  # noqa: F401 - that of the folder of the test

    try:
        install()
    except SpecError as error:
        return str(error)


def both() -> Any:
    lines = io.StringIO()
    logging.getLogger("sparktrain").addHandler(logging.StreamHandler(lines))
    install()
    import tensorflowonspark

    return [tensorflowonspark.__name__, lines.getvalue(), _names(pack(lambda: tensorflowonspark).archive)]


def _names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
