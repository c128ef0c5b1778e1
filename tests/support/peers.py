"""Imitates other mutating webhooks: each function returns a pod as another webhook would change it.

Network Resources Injector is imitated after its pkg/webhook/webhook.go. It adds the resources of the listed networks to
the first container. By default it skips a resource that any container requests; with honour_existing it adds to it.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable

NETWORKS = "k8s.v1.cni.cncf.io/networks"
SIDECAR = {"name": "mesh", "image": "mesh", "env": [{"name": "MESH", "value": "1"}]}


def _add(amounts: dict, resource: str, count: int) -> None:
    amounts[resource] = str(int(amounts.get(resource, "0")) + count)


def inject_resources(tree: dict, pools: dict, *, honour_existing: bool = False) -> dict:
    """Inject as Network Resources Injector does, for an annotation in list form. `pools` maps network to resource."""
    tree = copy.deepcopy(tree)
    annotation = tree["metadata"].get("annotations", {}).get(NETWORKS, "")
    namespace = tree["metadata"].get("namespace", "prod")
    keys = [item.strip().split("@")[0] for item in annotation.split(",") if item.strip()]
    full = [tuple(key.split("/")) if "/" in key else (namespace, key) for key in keys]
    counts = Counter(resource for key in full if (resource := pools.get(key)))
    containers = tree["spec"]["containers"]
    for resource, count in counts.items():
        named = any(
            resource in container.get("resources", {}).get(part, {})
            for container in containers
            for part in ("requests", "limits")
        )
        if named and not honour_existing:
            continue
        resources = containers[0].setdefault("resources", {})
        for part in ("requests", "limits"):
            _add(resources.setdefault(part, {}), resource, count)
    return tree


def inject_missing_resources(tree: dict, pools: dict) -> dict:
    return inject_resources(tree, pools, honour_existing=True)


ACTIONS: dict[str, Callable[[dict], dict]] = {}


def action(change: Callable[[dict], None]) -> Callable[[dict], dict]:
    """Register a change of a pod by another webhook. The pod that it gets stays as it was."""

    def apply(tree: dict) -> dict:
        tree = copy.deepcopy(tree)
        change(tree)
        return tree

    ACTIONS[change.__name__] = apply
    return apply


@action
def replace_networks(tree: dict, value: str = "prod/theirs") -> None:
    """Replace the whole annotation, as the injector's user-defined injection does (network-resources-injector#88)."""
    tree["metadata"].setdefault("annotations", {})[NETWORKS] = value


@action
def prepend_sidecar(tree: dict) -> None:
    """Insert a sidecar as the first container, as a service mesh does. Do nothing the second time."""
    if all(container["name"] != SIDECAR["name"] for container in tree["spec"]["containers"]):
        tree["spec"]["containers"].insert(0, copy.deepcopy(SIDECAR))


@action
def append_sidecar(tree: dict) -> None:
    if all(container["name"] != "logs" for container in tree["spec"]["containers"]):
        tree["spec"]["containers"].append({"name": "logs", "image": "logs"})


@action
def reverse_containers(tree: dict) -> None:
    tree["spec"]["containers"].reverse()


@action
def drop_last_container(tree: dict) -> None:
    if len(tree["spec"]["containers"]) > 1:
        tree["spec"]["containers"].pop()


@action
def add_env_everywhere(tree: dict) -> None:
    """Add one variable before and one after all others, in every container. Do nothing the second time."""
    for container in tree["spec"]["containers"]:
        env = container.setdefault("env", [])
        names = {entry["name"] for entry in env}
        if "PEER_A" not in names:
            env.insert(0, {"name": "PEER_A", "value": "a"})
        if "PEER_B" not in names:
            env.append({"name": "PEER_B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})


@action
def drop_last_variable(tree: dict) -> None:
    """Delete the last variable of each container that has two or more, also if our webhook wrote it."""
    for container in tree["spec"]["containers"]:
        if len(container.get("env", [])) > 1:
            del container["env"][-1]


@action
def add_annotation(tree: dict) -> None:
    tree["metadata"].setdefault("annotations", {})["peer/seen"] = "yes"


@action
def drop_record(tree: dict) -> None:
    tree["metadata"].get("annotations", {}).pop("railwright.io/injection", None)


@action
def drop_networks(tree: dict) -> None:
    tree["metadata"].get("annotations", {}).pop(NETWORKS, None)


@action
def add_volume(tree: dict) -> None:
    volumes = tree["spec"].setdefault("volumes", [])
    if all(item["name"] != "peer" for item in volumes):
        volumes.insert(0, {"name": "peer", "emptyDir": {}})
        for container in tree["spec"]["containers"]:
            container.setdefault("volumeMounts", []).insert(0, {"name": "peer", "mountPath": "/peer"})


@action
def set_defaults(tree: dict) -> None:
    """Set some of the API server's defaults: requests from limits, a container's policies, a volume's mode."""
    tree["spec"].setdefault("restartPolicy", "Always")
    for container in tree["spec"]["containers"]:
        container.setdefault("imagePullPolicy", "Always")
        resources = container.setdefault("resources", {})
        for name, amount in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
    for item in tree["spec"].get("volumes", []):
        if "downwardAPI" in item:
            item["downwardAPI"].setdefault("defaultMode", 420)


def drop_file_keys(tree: dict) -> dict:
    """Change a pod like a webhook that decodes and encodes it with an API older than Kubernetes 1.34."""
    tree = copy.deepcopy(tree)
    for container in tree["spec"]["containers"]:
        for entry in container.get("env", []):
            entry.get("valueFrom", {}).pop("fileKeyRef", None)
    return tree


def apply_actions(tree: dict, names: Iterable[str]) -> dict:
    """Return the pod after the named ACTIONS, in this order."""
    for name in names:
        tree = ACTIONS[name](tree)
    return tree
