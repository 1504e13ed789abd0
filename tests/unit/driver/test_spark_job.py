"""One line of what Spark reports when a job of agents ends: it has the cause."""

import pytest

from sparktrain.driver.spark_job import first_line

ABORTED = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in"
LOST = f"{ABORTED} stage 0.0 (TID 5) (198.18.2.7 executor 4): ExecutorLostFailure (executor 4 exited) Reason:"

WORKER = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker:"
FRAME = '  File "entry.py", line 22, in agent_task\n    held()\n    ^^^^\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("An error occurred while calling o1.collect.\n: org.apache.Failed: why\n\tat org", "org.apache.Failed: why"),
        (f"{LOST} \n\nThe executor with id 4 exited.\n", f"{LOST} The executor with id 4 exited."),
        (f"{LOST}", LOST),
        (f"{LOST} \nTraceback\nModuleNotFoundError: No module named 'a'\n", "ModuleNotFoundError: No module named 'a'"),
        (
            f"{WORKER}\nTraceback (most recent call last):\n{FRAME}OSError: no room\n SQLSTATE: 1\n\tat x",
            "OSError: no room",
        ),
        (f"{LOST}: {WORKER} Traceback (most recent call last):\n{FRAME}a.B: why\n\tat x", "a.B: why"),
        ("", "ValueError"),
    ],
    ids=["of the JVM", "a reason in the next line", "no reason", "of Python", "of a worker", "of a task", "nothing"],
)
def test_the_line_of_a_job_that_ended_has_the_cause(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
