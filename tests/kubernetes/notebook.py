"""A notebook's program in a pod: a session in client mode, and a sweep. Its arguments: settings of Spark, a folder."""

import json
import sys
from pathlib import Path

from held_trial import held

import sparktrain as st

if __name__ == "__main__":
    conf, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    master = conf.pop("spark.master")
    with st.session(master, conf):
        space = {"x": [0, 1], "folder": [str(folder)]}
        try:
            st.submit(held, space, metric="y", mode="max", dir=f"file://{folder}/runs", name="submitted")
        except st.SpecError as error:
            print(error)
        print(
            st.sweep(held, space, metric="y", mode="max", backend="none", preload=[], dir=folder / "runs", name="held")
        )
