"""Builds Kueue's objects, and waits for its decisions about jobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plane import api, manifests, waiting

QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # label of a job
POD_SET = "kueue.x-k8s.io/podset-"  # begin of annotations of pod templates
VERSION = "kueue.x-k8s.io/v1beta2"
HOSTNAME = "kubernetes.io/hostname"
RAIL = "example.com/rail"  # the name under which a queue counts the NICs of claims
_GPU = "nvidia.com/gpu"
# of the controller: what the tests count by claims, and the jobs that it manages
CONFIGURATION: Mapping[str, Any] = {
    "namespace": "kueue-system",
    "featureGates": {"VisibilityOnDemand": False},  # its server listens on a fixed port
    "integrations": {
        "frameworks": [
            "batch/job",
            "jobset.x-k8s.io/jobset",
            "kubeflow.org/mpijob",
            "kubeflow.org/pytorchjob",
            "pod",
            "statefulset",
        ]
    },
    "resources": {
        "deviceClassMappings": [
            {"name": _GPU, "deviceClassNames": ["gpu.nvidia.com"]},
            {"name": RAIL, "deviceClassNames": ["dranet"]},
        ]
    },
}


def build(kind: str, name: str, metadata: Mapping[str, Any] | None = None, **spec: Any) -> api.Object:
    """Return an object of Kueue."""
    return {**manifests.build(kind, name, metadata, spec=spec), "apiVersion": VERSION}


def topology(name: str, *levels: str) -> api.Object:
    """Return a Topology with these labels of nodes as levels, the widest first."""
    return build("Topology", name, levels=[{"nodeLabel": level} for level in levels])


def flavor(name: str, labels: Mapping[str, str], topology: str = "") -> api.Object:
    """Return a ResourceFlavor for the nodes with these labels."""
    named = {"topologyName": topology} if topology else {}
    return build("ResourceFlavor", name, nodeLabels=dict(labels), **named)


async def make_queue(
    client: api.Api, namespace: str, name: str, flavors: Sequence[str], quota: Mapping[str, int]
) -> None:
    """Create a ClusterQueue with these quotas in each flavor, and its LocalQueue `q`; wait until it is active."""
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    in_flavors = [{"name": flavor, "resources": resources} for flavor in flavors]
    group = {"coveredResources": [*quota], "flavors": in_flavors}
    await client.create(build("ClusterQueue", name, namespaceSelector={}, resourceGroups=[group]))
    await client.create(build("LocalQueue", "q", clusterQueue=name), namespace=namespace)

    async def is_active() -> bool:
        queue = await client.get("LocalQueue", "q", namespace)
        states = {entry["type"]: entry["status"] for entry in queue.get("status", {}).get("conditions", ())}
        assert states.get("Active") == "True", json.dumps(queue.get("status"))
        return True

    await waiting.wait(is_active, describe=f"the LocalQueue of {name} to be active")


async def wait_workload(client: api.Api, namespace: str, job: str, **conditions: str) -> api.Object:
    """Wait until the Workload of a job has these conditions, such as `Admitted="True"`; return it."""

    async def find() -> api.Object:
        listed = await client.list(f"{VERSION}/Workload", namespace)
        owned = [tree for tree in listed if tree["metadata"]["ownerReferences"][0]["name"] == job]
        assert owned, f"no Workload of {job}"
        states = {entry["type"]: entry for entry in owned[-1].get("status", {}).get("conditions", ())}
        for condition, status in conditions.items():
            assert states.get(condition, {}).get("status") == status, json.dumps(states, indent=1)
        return owned[-1]

    return await waiting.wait(find, describe=f"the Workload of {job} to be {conditions}")


async def wait_refused(client: api.Api, namespace: str, job: str, part: str) -> None:
    """Wait until Kueue reports that it does not admit a job, in a message with this part."""

    async def is_refused() -> bool:
        tree = await wait_workload(client, namespace, job, QuotaReserved="False")
        messages = [entry["message"] for entry in tree["status"]["conditions"] if entry["type"] == "QuotaReserved"]
        assert part in messages[0], messages
        return True

    await waiting.wait(is_refused, describe=f"Kueue to refuse {job}")
