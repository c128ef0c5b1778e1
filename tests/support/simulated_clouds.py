"""Builds the objects of a cluster on which a vendor's published pods run: what they request, select and name."""

from typing import Any

import msgspec
import shapes
import yaml

from railwright.cli.clouds import matching, profiles
from railwright.cli.clouds.matching import Kind
from railwright.cli.explanation import templates
from railwright.fabric import names
from railwright.fabric.multus import annotation
from railwright.fabric.policy import claimed_rails, presets

Tree = dict[str, Any]
SHAPES = [shape for profile in profiles.list_profiles() for shape in profiles.list_shapes(profile)]
PUBLISHED = {"p4d": "eks-p4d", "p5": "eks-p5", "infiniband": "aks-gb300"}  # slices of fabrics with GPUs as claims
SHARED = {"rdma/shared_ib": "63", "rdma/rdma_shared_device_a": "63", "rdma/rdma_shared_device_eth": "63"}


def build(shape: profiles.Shape, nodes: int = 2) -> dict[Kind, list[Tree]]:
    """Return the objects: nodes with labels, resources and slices, and the networks and classes that pods name."""
    documents = [tree for tree in yaml.safe_load_all(shape.read_text("vendor.yaml")) if tree]
    pods = [template.pod for tree in documents for template in templates.expand(tree, "default") or ()]
    trees: dict[Kind, list[Tree]] = {kind: [] for kind in Kind}
    resources = _list_resources(pods)
    fabric = shape.fabric
    labels = {key: values[0].replace("*", "x") for key, values in shape.labels.items()}
    for index in range(nodes):
        domains = {key: f"domain-{level}" for level, key in enumerate(presets.list_domain_keys(fabric.placement))}
        name = f"{shape.profile.name}-{shape.fabric_name}-{index}"
        amounts = {"cpu": "96", **resources}
        metadata = {"name": name, "labels": {**domains, **labels}}
        trees[Kind.NODE].append({"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})
        if fabric.claims is not None and fabric.claims.accelerators is not None:
            trees[Kind.SLICE] += shapes.load(PUBLISHED[shape.fabric_name]).build_slices(name)
        elif fabric.claims is not None:
            trees[Kind.SLICE].append(_build_slice(name, [rail.device or "" for rail in fabric.rails]))
    for pod in pods:
        annotations = pod["metadata"].get("annotations", {})
        for selection in annotation.parse(annotations.get(names.NETWORKS, ""), "default"):
            trees[Kind.NETWORK].append(_build_network(*selection.key))
        for item in yaml.safe_load(annotations.get(matching.GKE_INTERFACES, "[]")):
            trees[Kind.GKE_NETWORK].append({"metadata": {"name": item["network"]}})
    classes = {}
    if fabric.claims is not None:
        driver = claimed_rails.find_driver(fabric.claims).name
        classes[fabric.claims.device_class] = f'device.driver == "{driver}"'
        if fabric.claims.accelerators is not None:
            classes |= shapes.load(PUBLISHED[shape.fabric_name]).classes
    trees[Kind.DEVICE_CLASS] = [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        for name, expression in classes.items()
    ]
    return trees


def read(trees: dict[Kind, list[Tree]]) -> matching.Cluster:
    """Return the objects as the command reads them."""
    return matching.build(
        {kind: [msgspec.convert(tree, view) for tree in trees[kind]] for kind, (_, view) in matching.VIEWS.items()}
    )


def join(*clusters: dict[Kind, list[Tree]]) -> dict[Kind, list[Tree]]:
    """Return the objects of all clusters as one."""
    return {kind: [tree for trees in clusters for tree in trees[kind]] for kind in Kind}


def _list_resources(pods: list[Tree]) -> dict[str, str]:
    """Return the devices that a pod of the vendor requests; all of a node's."""
    limits = [
        container.get("resources", {}).get("limits", {}) for pod in pods for container in pod["spec"]["containers"]
    ]
    devices = {name: str(amount) for amounts in limits for name, amount in amounts.items() if "/" in name}
    return {**devices, **{name: amount for name, amount in SHARED.items() if name in devices}}


def _build_network(namespace: str, name: str) -> Tree:
    config = '{"cniVersion": "0.3.1", "type": "macvlan"}'
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"config": config}}


def _build_slice(node: str, devices: list[str]) -> Tree:
    attributes = [{"dra.net/rdma": {"bool": True}, "dra.net/rdmaDevice": {"string": name}} for name in devices]
    return {
        "metadata": {"name": f"{node}-dra.net"},
        "spec": {
            "driver": "dra.net",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"nic-{index}", "attributes": row} for index, row in enumerate(attributes)],
        },
    }
