"""A sweep of scikit-learn, XGBoost or LightGBM: a trial is any Python function, and any model is kept.

    python examples/any_library.py

Each trial trains one kind of model on the handwritten digits that scikit-learn brings, in a process of its own. The
best one is loaded at the end, by its own library. Leave out of `MODELS` what is not installed.
"""

import sparktrain as st

MODELS = ["logistic regression", "xgboost", "lightgbm"]


def train(kind, strength, ctx):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    seen, held_out, labels, truth = train_test_split(images, digits, test_size=0.25, random_state=0)
    model = build(kind, strength).fit(seen, labels)
    ctx.export(model)
    return {"accuracy": model.score(held_out, truth), "kind": kind}


def build(kind, strength):
    if kind == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=20, max_depth=3, learning_rate=strength, n_jobs=1)
    if kind == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=20, num_leaves=8, learning_rate=strength, n_jobs=1, verbose=-1)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=1000)


def search(session, **options):
    """The result of a grid: each kind of model with two strengths."""
    return st.sweep(train, {"kind": MODELS, "strength": [0.1, 0.5]}, metric="accuracy", spark=session, **options)


if __name__ == "__main__":
    result = search(st.local(slots=2))  # search(None) takes the active Spark session
    print(result)
    print(f"the best model, loaded: {type(result.best.load_model()).__name__}")
