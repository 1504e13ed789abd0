"""Hadoop's own daemons on this machine, for tests: `make hadoop` fetches their jars.

| module | |
|---|---|
| `clusters`, `ha` | HDFS: a NameNode with its DataNodes; two NameNodes of one nameservice |
| `daemons` | one daemon: started, stopped, killed, paused, woken |
| `java` | the jars, and what a JVM is started with |
| `conf` | folders of configuration |
| `ports` | addresses of daemons that may be down |
"""

from sparktrain.testing.hadoop.clusters import Hdfs as Hdfs
from sparktrain.testing.hadoop.clusters import hdfs as hdfs
from sparktrain.testing.hadoop.daemons import Daemon as Daemon
from sparktrain.testing.hadoop.ha import HaHdfs as HaHdfs
from sparktrain.testing.hadoop.ha import ha_hdfs as ha_hdfs
from sparktrain.testing.hadoop.java import HadoopError as HadoopError
from sparktrain.testing.hadoop.java import JarsMissingError as JarsMissingError
