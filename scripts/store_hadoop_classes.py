"""Stores Hadoop's classes in a form that JVMs map into memory: the daemons of tests start with half the work.

    .venv/bin/python -m scripts.store_hadoop_classes

Once, in a minute: does nothing where they are stored for this Java. The file, of about 120 MB, is beside the jars,
where `tests.support.hadoop` looks for it.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.store_classes import finished, merged
from tests.support.hadoop import Knobs, hdfs, java, yarn


def main() -> None:
    """Store the classes, unless they are stored."""
    target, program = java.stored_classes(), f"{java.java_home()}/bin/java"
    stamp, wanted = target.with_suffix(".of"), finished([program, "-version"])
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print("hadoop: storing the classes of its daemons, a minute", flush=True)
    # Checkouts share the jars, and another one may use the file that this one replaces.
    with TemporaryDirectory(prefix=".classes-", dir=target.parent) as name:
        folder = Path(name)
        watch(folder)
        made = folder / target.name
        listed = [f"-XX:SharedClassListFile={merged(folder)}", f"-XX:SharedArchiveFile={made}"]
        finished([program, "-XX:+UseSerialGC", "-Xshare:dump", *listed, "-cp", f"{java.jars()}/*"])
        stamp.unlink(missing_ok=True)
        made.replace(target)
    stamp.write_text(wanted)


def watch(folder: Path) -> None:
    """Run each kind of daemon, and a command, on JVMs that list the classes they load."""
    os.environ["JDK_JAVA_OPTIONS"] = f"-XX:DumpLoadedClassList={folder}/loaded-%p"
    with hdfs(folder / "hdfs") as cluster, yarn(folder / "yarn", cluster, Knobs()):
        cluster.cli("-ls", "/")


if __name__ == "__main__":
    main()
