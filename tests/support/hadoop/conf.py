"""Folders of configuration, as `HADOOP_CONF_DIR` names them."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from tests.support.hadoop.java import TMP

Site = Mapping[str, str]
"""Values by name."""

_LOG4J = """\
log4j.rootLogger={level},console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %p %c{{2}}: %m%n
log4j.logger.http.requests=WARN
log4j.logger.org.apache.hadoop.ipc.Client=WARN
"""
_WEBAPPS = ("hdfs", "datanode", "static")
"""Folders that HDFS wants to find on its class path, and that its jars lack; empty ones will do."""


def write_conf(folder: Path, sites: Mapping[str, Site], level: str = "WARN") -> None:
    """Fill `folder`, which may exist: a file for each of the `sites`, such as `core-site`, and a log on stderr."""
    for name in (*(f"webapps/{name}" for name in _WEBAPPS), TMP):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(_LOG4J.format(level=level))
    for site, values in sites.items():
        root = ElementTree.Element("configuration")
        for name, value in values.items():
            entry = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(entry, "name").text = name
            ElementTree.SubElement(entry, "value").text = value
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(folder / f"{site}.xml", encoding="utf-8", xml_declaration=True)
