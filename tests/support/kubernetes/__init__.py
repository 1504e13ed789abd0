"""Kubernetes' own daemons on this machine, for tests: `make kubernetes` builds them.

| module | |
|---|---|
| `cluster` | a cluster: started, asked, with pods in it, and ended |
| `submit` | spark-submit to it |
| `control_plane`, `node` | the daemons of both, and their settings |
| `pod_image`, `image` | what pods run |
| `kueue` | queues for pods, where a test asks for them |
| `device_plugin` | a program that serves plain files as GPUs to a kubelet |
| `api` | the API server, asked as JSON |
| `namespaces`, `network`, `addresses` | what a cluster has of this machine, so that none of it is left |
| `daemons` | one daemon in these namespaces |
| `programs` | the programs that are built |
"""

from tests.support.kubernetes.api import Api as Api
from tests.support.kubernetes.api import ApiError as ApiError
from tests.support.kubernetes.cluster import ACCOUNT as ACCOUNT
from tests.support.kubernetes.cluster import NAMESPACE as NAMESPACE
from tests.support.kubernetes.cluster import SUBMITTER as SUBMITTER
from tests.support.kubernetes.cluster import Kubernetes as Kubernetes
from tests.support.kubernetes.cluster import kubernetes as kubernetes
from tests.support.kubernetes.control_plane import Knobs as Knobs
from tests.support.kubernetes.node import GPU as GPU
from tests.support.kubernetes.node import NodeSpec as NodeSpec
from tests.support.kubernetes.programs import ProgramsMissingError as ProgramsMissingError
from tests.support.kubernetes.programs import missing as missing
from tests.support.kubernetes.submit import Mode as Mode
from tests.support.kubernetes.submit import Submission as Submission
from tests.support.kubernetes.submit import conf_in_pod as conf_in_pod
from tests.support.kubernetes.submit import driver_container as driver_container
from tests.support.kubernetes.submit import fast_conf as fast_conf
from tests.support.kubernetes.submit import sparktrain_submit as sparktrain_submit
from tests.support.kubernetes.submit import submission as submission
