"""Other webhooks beside ours, as functions of a pod: what they do between two of our calls.

Network Resources Injector is modelled after its pkg/webhook/webhook.go: the resources of the listed networks, into the
first container only; in its default mode nothing where any container names the resource, in the other it adds.
"""

import copy
from collections import Counter
from collections.abc import Iterable

NETWORKS = "k8s.v1.cni.cncf.io/networks"
SIDECAR = {"name": "mesh", "image": "mesh", "env": [{"name": "MESH", "value": "1"}]}


def _add(amounts: dict, resource: str, count: int) -> None:
    amounts[resource] = str(int(amounts.get(resource, "0")) + count)


def injector(tree: dict, pools: dict, *, honour_existing: bool = False) -> dict:
    """Network Resources Injector, for a networks annotation in the list form; `pools`: network -> resource."""
    tree = copy.deepcopy(tree)
    written = tree["metadata"].get("annotations", {}).get(NETWORKS, "")
    namespace = tree["metadata"].get("namespace", "prod")
    keys = [item.strip().split("@")[0] for item in written.split(",") if item.strip()]
    full = [tuple(key.split("/")) if "/" in key else (namespace, key) for key in keys]
    counts = Counter(resource for key in full if (resource := pools.get(key)))
    containers = tree["spec"]["containers"]
    for resource, count in counts.items():
        named = any(
            resource in each.get("resources", {}).get(part, {})
            for each in containers
            for part in ("requests", "limits")
        )
        if named and not honour_existing:
            continue
        resources = containers[0].setdefault("resources", {})
        for part in ("requests", "limits"):
            _add(resources.setdefault(part, {}), resource, count)
    return tree


def injector_honouring(tree: dict, pools: dict) -> dict:
    return injector(tree, pools, honour_existing=True)


def user_defined_injection(tree: dict, value: str = "prod/theirs") -> dict:
    """Its user-defined injection replaces the whole annotation (network-resources-injector#88)."""
    tree = copy.deepcopy(tree)
    tree["metadata"].setdefault("annotations", {})[NETWORKS] = value
    return tree


def sidecar_first(tree: dict) -> dict:
    """A mesh that holds the application until its proxy starts; once only."""
    tree = copy.deepcopy(tree)
    if all(each["name"] != SIDECAR["name"] for each in tree["spec"]["containers"]):
        tree["spec"]["containers"].insert(0, copy.deepcopy(SIDECAR))
    return tree


def sidecar_last(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    if all(each["name"] != "logs" for each in tree["spec"]["containers"]):
        tree["spec"]["containers"].append({"name": "logs", "image": "logs"})
    return tree


def reversed_containers(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    tree["spec"]["containers"].reverse()
    return tree


def without_last(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    if len(tree["spec"]["containers"]) > 1:
        tree["spec"]["containers"].pop()
    return tree


def env_everywhere(tree: dict) -> dict:
    """An entry before and one behind all others, in every container; once only."""
    tree = copy.deepcopy(tree)
    for container in tree["spec"]["containers"]:
        env = container.setdefault("env", [])
        names = {each["name"] for each in env}
        if "PEER_A" not in names:
            env.insert(0, {"name": "PEER_A", "value": "a"})
        if "PEER_B" not in names:
            env.append({"name": "PEER_B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return tree


def without_an_entry(tree: dict) -> dict:
    """One entry of each container's environment is lost, whoever wrote it."""
    tree = copy.deepcopy(tree)
    for container in tree["spec"]["containers"]:
        if len(container.get("env", [])) > 1:
            del container["env"][-1]
    return tree


def annotated(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    tree["metadata"].setdefault("annotations", {})["peer/seen"] = "yes"
    return tree


def without_record(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    tree["metadata"].get("annotations", {}).pop("railwright.io/injection", None)
    return tree


def without_networks(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    tree["metadata"].get("annotations", {}).pop(NETWORKS, None)
    return tree


def volume(tree: dict) -> dict:
    tree = copy.deepcopy(tree)
    volumes = tree["spec"].setdefault("volumes", [])
    if all(each["name"] != "peer" for each in volumes):
        volumes.insert(0, {"name": "peer", "emptyDir": {}})
        for container in tree["spec"]["containers"]:
            container.setdefault("volumeMounts", []).insert(0, {"name": "peer", "mountPath": "/peer"})
    return tree


def defaulted(tree: dict) -> dict:
    """Some of what the API server fills in: requests from limits, a container's policies, a volume's mode."""
    tree = copy.deepcopy(tree)
    tree["spec"].setdefault("restartPolicy", "Always")
    for container in tree["spec"]["containers"]:
        container.setdefault("imagePullPolicy", "Always")
        resources = container.setdefault("resources", {})
        for name, amount in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
    for each in tree["spec"].get("volumes", []):
        if "downwardAPI" in each:
            each["downwardAPI"].setdefault("defaultMode", 420)
    return tree


def acted(tree: dict, names: Iterable[str]) -> dict:
    """The pod after some of ACTIONS, in order."""
    for name in names:
        tree = ACTIONS[name](tree)
    return tree


ACTIONS = {
    action.__name__: action
    for action in (
        sidecar_first,
        sidecar_last,
        reversed_containers,
        without_last,
        env_everywhere,
        without_an_entry,
        annotated,
        without_record,
        without_networks,
        volume,
        defaulted,
        user_defined_injection,
    )
}
