"""The panels of the command line's help, in the order in which a person needs them."""

TRIALS = "What to try"
FUNCTION = "The function"
ROWS = "Rows"
MODEL = "The model"
METRIC = "The metric"
WHERE = "Where it runs"
SERVED = "Where it is served"
SIZE = "How many"
GANG = "The gang"
RUN = "The run"
RESUMING = "If the run exists already"
SPARK = "Spark"
PACK = "The environment of executors"
TRACKING = "Tracking"
DELETED = "What is deleted"
SHOWN = "What is shown"
OUTPUT = "Output"
PANELS = (
    TRIALS, FUNCTION, ROWS, MODEL, METRIC, WHERE, SERVED, SIZE, GANG, RUN, RESUMING, SPARK, PACK, TRACKING,
    DELETED, SHOWN, OUTPUT,
)  # fmt: skip
"""Each command shows those that it has in this order: what to try, what to measure, where, how many, then the rest."""
