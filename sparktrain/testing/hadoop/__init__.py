"""Hadoop's own daemons on this machine, for tests: `make hadoop` fetches their jars.

| module | |
|---|---|
| `clusters`, `ha` | HDFS: a NameNode with its DataNodes; two NameNodes of one nameservice |
| `kerberos` | a KDC, and HDFS that wants its tickets |
| `yarn`, `yarn_conf` | YARN: a ResourceManager with two NodeManagers, of which one is labelled |
| `submit` | spark-submit to it |
| `containers` | what NodeManagers leave behind |
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
from sparktrain.testing.hadoop.kerberos import REALM as REALM
from sparktrain.testing.hadoop.kerberos import Kdc as Kdc
from sparktrain.testing.hadoop.kerberos import SecureHaHdfs as SecureHaHdfs
from sparktrain.testing.hadoop.kerberos import SecureHdfs as SecureHdfs
from sparktrain.testing.hadoop.kerberos import kdc as kdc
from sparktrain.testing.hadoop.kerberos import secure_hdfs as secure_hdfs
from sparktrain.testing.hadoop.submit import Submission as Submission
from sparktrain.testing.hadoop.submit import fast_conf as fast_conf
from sparktrain.testing.hadoop.submit import submission as submission
from sparktrain.testing.hadoop.submit import submit as submit
from sparktrain.testing.hadoop.yarn import Yarn as Yarn
from sparktrain.testing.hadoop.yarn import yarn as yarn
from sparktrain.testing.hadoop.yarn_conf import LABEL as LABEL
from sparktrain.testing.hadoop.yarn_conf import Knobs as Knobs
