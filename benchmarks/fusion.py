"""Many small tensors through a ring of two members: joined, as gradients travel, and one by one.

python -m benchmarks.fusion [--tensors 40] [--floats 256] [--rounds 50]
"""

import argparse
import json
import time
from statistics import median

import sparktrain as st
from benchmarks.machine import show
from benchmarks.session import MASTER, quiet, session


def measure(tensors: int, floats: int, rounds: int, ctx) -> dict[str, float]:
    """The median of both ways, in ms."""
    import tensorflow as tf

    small = [tf.ones([floats]) for _ in range(tensors)]

    def joined() -> None:
        ctx.allreduce(small)

    def one_by_one() -> None:
        for each in small:
            ctx.allreduce(each)

    taken: dict[str, list[float]] = {"joined": [], "one by one": []}
    for number in range(rounds + 5):
        for name, call in (("joined", joined), ("one by one", one_by_one)):
            started_at = time.perf_counter()
            call()
            if number >= 5:  # the first rounds trace and connect
                taken[name].append(1e3 * (time.perf_counter() - started_at))
    return {name: median(each) for name, each in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=40)
    parser.add_argument("--floats", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    params = {"tensors": given.tensors, "floats": given.floats, "rounds": given.rounds}
    rows = []
    with session() as (_, runs):
        for backend in ("horovod", "tensorflow"):
            found = st.run(measure, params, workers=2, backend=backend, **quiet(runs)).metrics
            assert found is not None, json.dumps(params)
            one_by_one, joined = found["one by one"], found["joined"]
            rows.append((backend, f"{one_by_one:.1f} ms", f"{joined:.1f} ms", f"{one_by_one / joined:.1f}"))
    title = f"{given.tensors} tensors of {4 * given.floats} bytes, two members, {given.rounds} rounds, {MASTER}"
    show(title, ("ring", "one by one", "joined", "ratio"), rows)


if __name__ == "__main__":
    main()
