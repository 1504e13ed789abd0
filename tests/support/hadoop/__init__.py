"""Hadoop's own daemons on this machine, for tests: `make hadoop` fetches their jars.

| module | |
|---|---|
| `clusters`, `ha` | HDFS: a NameNode with its DataNodes; two NameNodes of one nameservice |
| `kerberos` | a KDC, and HDFS that wants its tickets |
| `yarn`, `yarn_conf` | YARN: a ResourceManager with two NodeManagers, one of them labelled |
| `submit` | spark-submit to it |
| `containers` | what NodeManagers leave behind |
| `daemons` | one daemon, a JVM |
| `java` | the jars, and what a JVM is started with |
| `conf` | folders of configuration |
| `ports` | addresses of daemons that may be down |
"""

from tests.support.hadoop.clusters import Hdfs as Hdfs
from tests.support.hadoop.clusters import hdfs as hdfs
from tests.support.hadoop.daemons import Daemon as Daemon
from tests.support.hadoop.ha import HaHdfs as HaHdfs
from tests.support.hadoop.ha import ha_hdfs as ha_hdfs
from tests.support.hadoop.java import JarsMissingError as JarsMissingError
from tests.support.hadoop.kerberos import REALM as REALM
from tests.support.hadoop.kerberos import Kdc as Kdc
from tests.support.hadoop.kerberos import SecureHaHdfs as SecureHaHdfs
from tests.support.hadoop.kerberos import SecureHdfs as SecureHdfs
from tests.support.hadoop.kerberos import kdc as kdc
from tests.support.hadoop.kerberos import secure_hdfs as secure_hdfs
from tests.support.hadoop.submit import Submission as Submission
from tests.support.hadoop.submit import fast_conf as fast_conf
from tests.support.hadoop.submit import submission as submission
from tests.support.hadoop.submit import submit as submit
from tests.support.hadoop.yarn import Yarn as Yarn
from tests.support.hadoop.yarn import yarn as yarn
from tests.support.hadoop.yarn_conf import LABEL as LABEL
from tests.support.hadoop.yarn_conf import Knobs as Knobs
