"""A process that starts a cluster of one node with a pod, prints what it has of this machine, and waits for its end."""

import json
import sys
from pathlib import Path

from tests.support.kubernetes import NodeSpec, kubernetes

if __name__ == "__main__":
    spec = NodeSpec(name="node-a", taints=["dedicated=training:PreferNoSchedule"])
    with kubernetes(Path(sys.argv[1]), [spec]) as cluster:
        cluster.run_pod("waits", "sleep", "1000")
        cluster.wait_pod("waits", "Running")
        taints = cluster.api.get("/api/v1/nodes/node-a")["spec"]["taints"]
        place = cluster.place
        print(json.dumps({"name": place.name, "link": place.link, "folder": str(place.folder), "taints": taints}))
        sys.stdout.flush()
        sys.stdin.read()
