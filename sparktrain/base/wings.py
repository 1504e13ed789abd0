"""What the core takes from wings, each by its name and imported when it is used: the core works without its wings."""

from importlib import import_module
from typing import Any

_HOMES = {
    "Board": "sparktrain.views.board.board",
    "BoardFeed": "sparktrain.views.board.board_feed",
    "LearningCurve": "sparktrain.ops.simulation.curves",
    "LivePage": "sparktrain.views.page.live_page",
    "ResultPlots": "sparktrain.views.notebook.result_plots",
    "VirtualRun": "sparktrain.ops.simulation.virtual_run",
    "install": "sparktrain.tensorflowonspark.installation",
    "run_html": "sparktrain.views.notebook.cards",
    "sweep_html": "sparktrain.views.notebook.cards",
    "write_report": "sparktrain.views.report.writing",
}


def from_wing(name: str) -> Any:
    """The class or function `name` of a wing. Imports its module. Raises ImportError where the wing is not there."""
    return getattr(import_module(_HOMES[name]), name)
