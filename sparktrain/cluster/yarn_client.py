"""A client of YARN's ResourceManager, by its REST API: status, applications, and why executors do not start."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from sparktrain.cluster.executor_loss import decommissioned, lost_host
from sparktrain.cluster.yarn_application import Application, application_of
from sparktrain.cluster.yarn_capacity import YarnStatus, demand_of, out_of_service, outlook, refusal
from sparktrain.errors import ResourceError, SpecError
from sparktrain.store.hadoop.hadoop_conf import configured

TIMEOUT_S = 5.0
"""The timeout for one answer."""

_PREFIX = "yarn.resourcemanager."
_FILES = ("core-site.xml", "yarn-site.xml")
_LOGS = re.compile(r"(?P<node>https?://[^/]+)/node/containerlogs/(?P<container>container_\w+)/")
_CONTENTS = re.compile(
    r"^Container: container_.*?^LogContents:\n|^End of LogType:.*|^\*{10,}\n?", re.DOTALL | re.MULTILINE
)
"""What a NodeManager writes around the content of a file."""
_API = "/ws/v1/cluster/"
_HOLDING = "apps?states=ACCEPTED,RUNNING"

logger = logging.getLogger("sparktrain")


class ResourceManager:
    """The ResourceManager, at the first of its addresses that answers. Methods block, in any thread."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` are like http://host:8088."""
        self.urls = tuple(urls)

    @classmethod
    def configured(cls) -> "ResourceManager":
        """The ResourceManager that Hadoop's configuration names, if any. Raises SpecError when that is corrupt."""
        settings = configured(_FILES, (_PREFIX, "yarn.http.policy"), "YARN_CONF_DIR")
        secure = settings.get("yarn.http.policy") == "HTTPS_ONLY"
        scheme, name, port = ("https", "webapp.https.address", 8090) if secure else ("http", "webapp.address", 8088)
        ids = [f".{rm_id.strip()}" for rm_id in settings.get(f"{_PREFIX}ha.rm-ids", "").split(",") if rm_id.strip()]
        urls = []
        for suffix in ids or [""]:
            host = settings.get(f"{_PREFIX}hostname{suffix}")
            address = settings.get(f"{_PREFIX}{name}{suffix}") or (f"{host}:{port}" if host else "")
            urls += [f"{scheme}://{address}"] if address else []
        return cls(urls)

    def status(self) -> YarnStatus | None:
        """The state of the cluster; None when no address answers this process, which may lack a ticket."""
        for url in self.urls:
            try:
                scheduler = get_json(f"{url}{_API}scheduler")["scheduler"]["schedulerInfo"]
                nodes = (get_json(f"{url}{_API}nodes")["nodes"] or {}).get("node") or []
                applications = (get_json(f"{url}{_API}{_HOLDING}")["apps"] or {}).get("app") or []
                return YarnStatus(scheduler, nodes, applications)
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                logger.info("the ResourceManager at %s cannot be queried: %s", url, error)
        return None

    def decommissioning(self) -> frozenset[str]:
        """Hosts with nodes that are decommissioned as soon as their containers have ended, or a timeout has. Empty when
        no address answers this process. Blocks for some seconds at most."""
        for url in self.urls:
            try:
                nodes = (get_json(f"{url}{_API}nodes?states=DECOMMISSIONING")["nodes"] or {}).get("node") or []
                return frozenset(str(node["nodeHostName"]) for node in nodes if node["state"] == "DECOMMISSIONING")
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                logger.debug("the ResourceManager at %s cannot be queried: %s", url, error)
        return frozenset()

    def applications(self, tag: str) -> list[Application] | None:
        """The applications with a tag, the newest first; None when no address answers this process. Blocks for some
        seconds at most."""
        for url in self.urls:
            try:
                reports = (get_json(f"{url}{_API}apps?applicationTags={quote(tag)}")["apps"] or {}).get("app") or []
                return sorted(map(application_of, reports), key=lambda application: application.id, reverse=True)
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                logger.info("the ResourceManager at %s cannot be queried: %s", url, error)
        return None


class Nodes:
    """Adds to Spark's message of a lost node whether YARN has decommissioned it. Blocks; never raises."""

    def __init__(self) -> None:
        # Messages come again while another loss is unexplained, and each query may block for some seconds.
        self._messages: dict[str, str] = {}

    def __call__(self, message: str) -> str:
        """The message of a failed task, and what became of its node; YARN is queried once for each message."""
        if message not in self._messages:
            self._messages[message] = self._with_node(message)
        return self._messages[message]

    def _with_node(self, message: str) -> str:
        host = lost_host(message)
        if host is None:
            return message
        try:
            status = ResourceManager.configured().status()
            is_out_of_service = status is not None and out_of_service(host, status.nodes)
            return decommissioned(message) if is_out_of_service else message
        except Exception as error:  # as in `Outlook`
            logger.info("what became of node %s is not known: %s: %s", host, type(error).__name__, error)
            return message


def driver_output(application: Application, characters: int = 4000) -> str:
    """The end of the output of the driver's container, from its node; empty when that does not answer. Blocks for some
    seconds at most."""
    match = _LOGS.match(application.logs_url)
    if match is None:
        return ""
    for name in ("stdout", "stderr"):
        url = f"{match['node']}/ws/v1/node/containerlogs/{match['container']}/{name}?size=-{characters}"
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S) as answer:
                content = str(answer.read().decode(errors="replace"))
        except (OSError, HTTPException) as error:
            logger.info("the output of %s cannot be read: %s", application.id, error)
            return ""
        if printed := _CONTENTS.sub("", content).strip():
            return printed[-characters:]
    return ""


class Outlook:
    """Explains what `executors` executors wait for. Any thread may call it; blocks, never raises."""

    def __init__(self, conf: Mapping[str, str], executors: int) -> None:
        self._demand = demand_of(conf)
        self._executors = executors

    def __call__(self) -> str:
        try:
            status = ResourceManager.configured().status()
            return outlook(self._demand, self._executors, status) if status is not None else ""
        except Exception as error:  # a hint must not end a run, whatever another version of YARN answers
            logger.info("what YARN has is not known: %s: %s", type(error).__name__, error)
            return ""


def check(conf: Mapping[str, str]) -> None:
    """Raises ResourceError when YARN can never start an executor of this configuration. Blocks for some seconds at
    most; a ResourceManager that does not answer is no error."""
    try:
        status = ResourceManager.configured().status()
        reason = refusal(demand_of(conf), status) if status is not None else ""
    except SpecError:
        raise
    except Exception as error:  # as above: an unknown answer is no reason to refuse
        logger.info("what YARN has is not known: %s: %s", type(error).__name__, error)
        return
    if reason:
        raise ResourceError(reason)


def get_json(url: str) -> Any:
    """The JSON answer of a Hadoop daemon; each step blocks for at most `TIMEOUT_S`. Raises OSError, HTTPException,
    ValueError."""
    # Without the header, the daemons answer in XML.
    request = Request(url, headers={"Accept": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)
