"""Mistakes that a type checker finds: each line that ends in `# wrong` has one, and no other line has."""

import sparktrain as st


def train(lr: float) -> float:
    return lr


SPACE = {"lr": [0.1, 0.01]}

st.sweep(train, SPACE)  # wrong
st.sweep(train, SPACE, metric=None)  # wrong
st.sweep(train, SPACE, metric="loss", mode="minimum")  # wrong
st.sweep(train, SPACE, metric="loss", backend="nccl")  # wrong
st.sweep(train, SPACE, metric="loss", trial_timout="5m")  # wrong
st.sweep(train, SPACE, metric="loss", trials="3")  # wrong
st.sweep(train, SPACE, metric="loss", retries=3)  # wrong
st.sweep(train, SPACE, metric="loss", agents=2)  # wrong
st.sweep(train, SPACE, metric="loss", max_failures="never")  # wrong
st.sweep(train, SPACE, metric="loss", allow_changed=["cod"])  # wrong
st.launch(None, train, SPACE, dir=3)  # wrong
st.launch(None, train, SPACE, workers=2)  # wrong
st.space(lr=st.uniform("low", 1))  # wrong
st.sweep(train, st.uniform(0, 1), metric="accuracy")  # wrong
st.run(train, {"lr": 0.1})  # wrong
st.run(train, {"lr": 0.1}, workers="2")  # wrong
st.run(train, {"lr": 0.1}, workers=2, max_restarts=1)  # wrong
st.run(train, {"lr": 0.1}, workers=2, backend="horovd")  # wrong
st.run(train, {"lr": 0.1}, workers=2, hang_timeout=None)  # wrong
st.resume("runs/mnist", retry_failed="yes")  # wrong
st.resume("runs/mnist", trials=2)  # wrong
st.pool(agents="2")  # wrong
with st.pool(agents=2, preload=["numpy"]) as pool:
    pool.sweep(train, SPACE)  # wrong
    pool.sweep(train, SPACE, metric="loss", max_concurrent_trials=2)  # wrong
    pool.launch(train, SPACE, gpus=0.5)  # wrong
    pool.run(train, {"lr": 0.1}, workers=2, evaluator="no")  # wrong
    pool.run(train, {"lr": 0.1}, workers=2, agents=3)  # wrong
st.run(train, {"lr": 0.1}, workers=2)
