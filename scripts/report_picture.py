"""Writes docs/images/report.png, the picture in the README: the report of a sweep on this machine, in Chromium.

It needs Debian's Chromium, which `scripts/install_test_tools.sh` installs, and takes a minute.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

import sparktrain as st
from sparktrain.views.report.writing import write_report

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.png"
MOST_BYTES = 150_000
SPACE = {"learning_rate": st.loguniform(1e-4, 0.3), "units": st.lograndint(4, 128), "decay": st.loguniform(1e-6, 1.0)}


def train(learning_rate: float, units: int, decay: float, ctx: st.TrainContext) -> float:
    """The accuracy of a small network on the images of digits that scikit-learn has."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, digits = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, digits, random_state=0)
    network = MLPClassifier((units,), learning_rate_init=learning_rate, alpha=decay, random_state=ctx.seed % 2**32)
    for epoch in range(1, 21):
        network.partial_fit(parts[0], parts[2], classes=range(10))
        ctx.report(epoch, accuracy=network.score(parts[1], parts[3]))
    return float(network.score(parts[1], parts[3]))


def photograph(page: Path) -> bytes:
    """The upper part of a page, as PNG. Blocks."""
    with sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-ready=yes]")
        return tab.screenshot()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        options = {"trials": 32, "stopper": "asha", "seed": 7, "name": "digits", "dir": folder, "spark": st.local()}
        result = st.sweep(train, SPACE, metric="accuracy", **options)
        print(result.best)  # raises where no trial has succeeded
        picture = photograph(write_report([result.directory], Path(folder) / "report.html"))
    if len(picture) > MOST_BYTES:
        raise SystemExit(f"the picture has {len(picture)} bytes, and may have {MOST_BYTES}: show less of the page")
    PICTURE.write_bytes(picture)
