"""Stores Spark's classes in a form that JVMs map into memory, in place of loading and verifying them one by one.

    .venv/bin/python scripts/store_classes.py [FILE]

Once, in a minute: does nothing where FILE is of this Java and this PySpark. FILE, of about 170 MB, is in the
folder of the environment, where `sparktrain.cluster.spark_session` looks for it, unless another one is named.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark

from sparktrain.cluster.spark_session import CLASSES, FAST_JVM
from tests.support.local_spark import LOCAL_CLUSTER, spark_session

TIMEOUT_S = 600
JAVA = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"


def main(target: Path) -> None:
    """Store the classes in `target`, unless it has them."""
    stamp = target.with_suffix(".of")
    wanted = f"{pyspark.__version__} {pyspark.__file__} {finished([JAVA, '-version'])}"
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print("classes: storing those of Spark, a minute", flush=True)
    with TemporaryDirectory(prefix="sparktrain-classes-") as name:
        folder = Path(name)
        finished([sys.executable, __file__, "--watch", name])
        words = (folder / "words").read_text().split("\n")
        listed = [f"-XX:SharedClassListFile={merged(folder)}", f"-XX:SharedArchiveFile={folder / CLASSES}"]
        finished([JAVA, "-XX:+UseSerialGC", "-Xshare:dump", *listed, *words])
        stamp.unlink(missing_ok=True)
        shutil.move(folder / CLASSES, target)
    stamp.write_text(wanted)


def watch(folder: Path) -> None:
    """Run a job on JVMs that list the classes they load, and record their command line."""
    options = f"{FAST_JVM} -XX:DumpLoadedClassList={folder}/loaded-%p"
    conf = {f"spark.{who}.extraJavaOptions": options for who in ("driver", "executor")}
    with spark_session(LOCAL_CLUSTER, folder, conf) as spark:
        spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
        java: Any = spark._jvm.java.lang  # type: ignore[union-attr] # a session that is active has a JVM
        given = java.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
        modules = [word for word in given if word.startswith("--add-modules")]
        words = [*modules, "-cp", java.System.getProperty("java.class.path")]
        (folder / "words").write_text("\n".join(words))


def merged(folder: Path) -> Path:
    """One list of what all JVMs have loaded; the last line of each may be cut."""
    lines = dict.fromkeys(
        line
        for path in sorted(folder.glob("loaded-*"))
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n") and not line.startswith("#")
    )
    (folder / "merged").write_text("".join(lines))
    return folder / "merged"


def finished(command: list[str]) -> str:
    """The output of a command. When it fails, this program ends with the command and its output."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        sys.exit(f"classes: failed: {' '.join(command)[:300]}\n{done.stdout[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        watch(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else Path(sys.prefix, CLASSES))
