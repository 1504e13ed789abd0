"""Spark's own log, which alone has the errors of its attempts to create pods on Kubernetes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

ALLOCATOR = "org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator"
"""The logger of what creates pods."""
LOGGED_S = 60.0
"""Interval at which Spark logs a refusal that was reported: it has 65 lines, each second."""
_numbers = count(1)


@contextmanager
def logged(context: Any) -> Iterator[Callable[[], str]]:
    """A function that returns the errors of pods that Spark has logged since the block was entered.

    Spark keeps them nowhere else. A dry run of our own would need a pod like Spark's, and webhooks that do not accept
    dry runs refuse it for that.
    """
    core = context._jvm.org.apache.logging.log4j.core
    logging_context = context._jvm.org.apache.logging.log4j.LogManager.getContext(False)
    layout = core.layout.PatternLayout.newBuilder().withPattern("%throwable{short.message}%n").build()
    text = context._jvm.java.io.StringWriter()
    builder = core.appender.WriterAppender.newBuilder()
    name = f"sparktrain-{next(_numbers)}"
    builder.setName(name)
    builder.setLayout(layout)
    builder.setTarget(text)
    appender = builder.build()
    appender.start()
    config = logging_context.getConfiguration().getLoggerConfig(ALLOCATOR)
    config.addAppender(appender, context._jvm.org.apache.logging.log4j.Level.WARN, None)
    try:
        yield lambda: str(text.toString())
    finally:
        config.removeAppender(name)
        appender.stop()


def log_rarely(context: Any) -> None:
    """Have Spark log the errors of its attempts to create pods once in `LOGGED_S`, for as long as the JVM lives."""
    log4j = context._jvm.org.apache.logging.log4j
    logging_context = log4j.LogManager.getContext(False)
    configuration = logging_context.getConfiguration()
    if configuration.getLoggerConfig(ALLOCATOR).getName() == ALLOCATOR:
        return
    config = log4j.core.config.LoggerConfig(ALLOCATOR, None, False)
    for appender in configuration.getRootLogger().getAppenders().values():
        # One for each: what an appender has written counts.
        burst = log4j.core.filter.BurstFilter.newBuilder()
        burst.setLevel(log4j.Level.ERROR)
        burst.setRate(1 / LOGGED_S)
        burst.setMaxBurst(1)
        config.addAppender(appender, None, burst.build())
    configuration.addLogger(ALLOCATOR, config)
    logging_context.updateLoggers()
