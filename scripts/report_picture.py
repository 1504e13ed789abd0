"""Writes docs/images/report.png, the picture in the README: the report of a sweep on this machine, in Chromium.

It needs Debian's Chromium, which `scripts/install_test_tools.sh` installs, and takes half a minute.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

import sparktrain as st
from sparktrain.views.report.writing import write_report

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
CHROMIUM = "/usr/bin/chromium"
MOST_BYTES = 150_000


def train(learning_rate: float, units: int, decay: float, ctx: st.TrainContext) -> dict[str, float]:
    """The accuracy of a small network on the images of digits that scikit-learn has."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, digits = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, digits, random_state=0)
    network = MLPClassifier((units,), learning_rate_init=learning_rate, alpha=decay, random_state=ctx.seed % 2**32)
    accuracy = 0.0
    for epoch in range(1, 21):
        network.partial_fit(parts[0], parts[2], classes=range(10))
        accuracy = network.score(parts[1], parts[3])
        ctx.report(epoch, accuracy=accuracy)
    return {"accuracy": accuracy}


def report(folder: Path) -> Path:
    """The report of a finished sweep, as a file in `folder`. Blocks."""
    space = {
        "learning_rate": st.loguniform(1e-4, 0.3),
        "units": st.lograndint(4, 128),
        "decay": st.loguniform(1e-6, 1.0),
    }
    result = st.sweep(
        train,
        space,
        metric="accuracy",
        trials=32,
        stopper="asha",
        seed=7,
        name="digits",
        dir=str(folder),
        spark=st.local(),
    )
    print(result.best)  # raises where no trial has succeeded
    return write_report([result.directory], folder / "report.html")


def photograph(page: Path) -> bytes:
    """The upper part of a page, as PNG. Blocks."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        tab = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-ready=yes]")
        picture = tab.screenshot()
        browser.close()
    return picture


def main() -> int:
    """Write the picture, unless it is larger than a README should load: then 1. Blocks."""
    with TemporaryDirectory() as folder:
        picture = photograph(report(Path(folder)))
    if len(picture) > MOST_BYTES:
        print(
            f"the picture has {len(picture)} bytes, and may have {MOST_BYTES}: show less of the page", file=sys.stderr
        )
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
