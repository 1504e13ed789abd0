"""The clusters that the tests of this ring use: they start fast, break as told, and leave nothing."""

from sparktrain.testing.hadoop import Hdfs


def test_what_was_written_outlives_a_killed_namenode(breakable_hdfs: Hdfs) -> None:
    breakable_hdfs.cli("-put", "-", "/kept", stdin="words")

    breakable_hdfs.namenode.kill9()
    breakable_hdfs.namenode.start()
    breakable_hdfs.wait_ready()

    assert breakable_hdfs.cli("-cat", "/kept") == "words"
