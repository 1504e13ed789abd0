"""Errors of Spark's pods are read from the log of its JVM, which has them nowhere else."""

from pyspark.sql import SparkSession

from sparktrain.cluster import kubernetes_log
from sparktrain.cluster.kubernetes_client import PodOutlook

ERROR = 'POST at: https://h/pods. Message: pods "{}" is forbidden: no. Received status: Status(code=1)'


def test_the_errors_of_pods_are_read_and_then_logged_rarely(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    logging = log4j.LogManager.getContext(False)
    logger = logging.getLogger(kubernetes_log.ALLOCATOR)
    console = jvm.java.io.StringWriter()
    builder = log4j.core.appender.WriterAppender.newBuilder()
    builder.setName("console of a test")
    builder.setTarget(console)
    shown = builder.build()
    shown.start()
    root = logging.getConfiguration().getRootLogger()
    root.addAppender(shown, None, None)

    def attempt(number: int) -> None:
        logger.error(f"Failed to create executor pod {number}", jvm.java.lang.Exception(ERROR.format(number)))

    outlook = PodOutlook(spark.sparkContext)
    try:
        assert outlook._refused() is None
        with kubernetes_log.logged(spark.sparkContext) as read:
            attempt(1)
            assert read() == f"{ERROR.format(1)}\n"
        kubernetes_log.log_rarely(spark.sparkContext)
        for number in range(2, 6):
            attempt(number)
        with kubernetes_log.logged(spark.sparkContext) as read:
            attempt(6)
            assert read() == f"{ERROR.format(6)}\n", "also where the log leaves it out"
        assert str(console.toString()).count("Failed to create") == 2, (
            "the first one, and the first one after it was reported"
        )
    finally:
        root.removeAppender("console of a test")
        logging.getConfiguration().removeLogger(kubernetes_log.ALLOCATOR)
        logging.updateLoggers()
