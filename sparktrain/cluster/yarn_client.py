"""YARN's ResourceManager, asked by its REST API where executors are to come from."""

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
from sparktrain.cluster.yarn_capacity import Told, demand_of, out_of_service, outlook, refusal
from sparktrain.errors import ResourceError, SpecError
from sparktrain.store.hadoop.hadoop_conf import configured

TIMEOUT_S = 5.0
"""For one answer."""

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
    """One of several, where there are several. Its methods block, and may be called from any thread."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` are like http://host:8088."""
        self.urls = tuple(urls)

    @classmethod
    def configured(cls) -> "ResourceManager":
        """The one that Hadoop's configuration names, if any. Raises SpecError when the configuration is damaged."""
        settings = configured(_FILES, (_PREFIX, "yarn.http.policy"), "YARN_CONF_DIR")
        secure = settings.get("yarn.http.policy") == "HTTPS_ONLY"
        scheme, name, port = ("https", "webapp.https.address", 8090) if secure else ("http", "webapp.address", 8088)
        ids = [f".{each.strip()}" for each in settings.get(f"{_PREFIX}ha.rm-ids", "").split(",") if each.strip()]
        urls = []
        for suffix in ids or [""]:
            host = settings.get(f"{_PREFIX}hostname{suffix}")
            address = settings.get(f"{_PREFIX}{name}{suffix}") or (f"{host}:{port}" if host else "")
            urls += [f"{scheme}://{address}"] if address else []
        return cls(urls)

    def tell(self) -> Told | None:
        """What it has for whom; None when none answers, or not to this process: it may want a ticket."""
        for url in self.urls:
            try:
                scheduler = get_json(f"{url}{_API}scheduler")["scheduler"]["schedulerInfo"]
                nodes = (get_json(f"{url}{_API}nodes")["nodes"] or {}).get("node") or []
                applications = (get_json(f"{url}{_API}{_HOLDING}")["apps"] or {}).get("app") or []
                return Told(scheduler, nodes, applications)
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                logger.info("the ResourceManager at %s cannot be asked: %s", url, error)
        return None

    def applications(self, tag: str) -> list[Application] | None:
        """Those with a tag, the newest first; None when none answers, or not to this process. Blocks for some seconds
        at most."""
        for url in self.urls:
            try:
                told = (get_json(f"{url}{_API}apps?applicationTags={quote(tag)}")["apps"] or {}).get("app") or []
                return sorted(map(application_of, told), key=lambda each: each.id, reverse=True)
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                logger.info("the ResourceManager at %s cannot be asked: %s", url, error)
        return None


class Nodes:
    """Says more of lost nodes than Spark does: those that were taken out of service. Blocks; never raises."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def __call__(self, said: str) -> str:
        """The message of a failed task, and what became of its node; each is looked at once."""
        if said not in self._told:
            self._told[said] = self._tell(said)
        return self._told[said]

    def _tell(self, said: str) -> str:
        host = lost_host(said)
        if host is None:
            return said
        try:
            told = ResourceManager.configured().tell()
            return decommissioned(said) if told is not None and out_of_service(host, told.nodes) else said
        except Exception as error:  # as of `Outlook`
            logger.info("what became of node %s is not known: %s: %s", host, type(error).__name__, error)
            return said


def driver_output(application: Application, characters: int = 4000) -> str:
    """The end of what the driver's container has printed, from the node that it was on; empty when that does not tell.
    Blocks for some seconds at most."""
    found = _LOGS.match(application.logs_url)
    if found is None:
        return ""
    for name in ("stdout", "stderr"):
        url = f"{found['node']}/ws/v1/node/containerlogs/{found['container']}/{name}?size=-{characters}"
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
    """Says what `executors` executors wait for. May be called from any thread, and blocks; never raises."""

    def __init__(self, conf: Mapping[str, str], executors: int) -> None:
        self._demand = demand_of(conf)
        self._executors = executors

    def __call__(self) -> str:
        try:
            told = ResourceManager.configured().tell()
            return outlook(self._demand, self._executors, told) if told is not None else ""
        except Exception as error:  # a text beside a run must not end it, whatever another version of YARN tells
            logger.info("what YARN has is not known: %s: %s", type(error).__name__, error)
            return ""


def check(conf: Mapping[str, str]) -> None:
    """Raises ResourceError when YARN will never give an executor of this configuration. Blocks for some seconds at
    most; where the ResourceManager cannot be asked, nothing is found."""
    try:
        told = ResourceManager.configured().tell()
        reason = refusal(demand_of(conf), told) if told is not None else ""
    except SpecError:
        raise
    except Exception as error:  # as above: what is not understood is no reason to refuse
        logger.info("what YARN has is not known: %s: %s", type(error).__name__, error)
        return
    if reason:
        raise ResourceError(reason)


def get_json(url: str) -> Any:
    """What a daemon of Hadoop answers; blocks for `TIMEOUT_S` each step. Raises OSError, HTTPException, ValueError."""
    request = Request(url, headers={"Accept": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)
