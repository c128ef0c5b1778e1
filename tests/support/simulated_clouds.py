"""Builds the cluster objects for a vendor's published pods: those that the pods request, select and name."""

from typing import Any

import comparison
import msgspec
import shapes
import yaml

from railwright.cli.clouds import first_policies
from railwright.cli.clouds.first_policies import Kind
from railwright.cli.explanation import templates
from railwright.fabric import names
from railwright.fabric.claims import objects
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import compiled, model

Tree = dict[str, Any]
SHAPES = comparison.list_shapes()
PUBLISHED = {"p4d": "eks-p4d", "p5": "eks-p5"}  # nodes of fabrics with GPUs as claims
SHARED = {"rdma/shared_ib": "63", "rdma/rdma_shared_device_a": "63", "rdma/rdma_shared_device_eth": "63"}


def build(shape: comparison.Shape, nodes: int = 2) -> dict[Kind, list[Tree]]:
    """Return the objects: nodes with labels and resources, and the networks and classes that pods name."""
    documents = [tree for tree in yaml.safe_load_all(shape.read_text("vendor.yaml")) if tree]
    pods = [template.pod for tree in documents for template in templates.list_templates(tree, "default")]
    trees: dict[Kind, list[Tree]] = {kind: [] for kind in Kind}
    resources = _list_resources(pods)
    fabric = shape.fabric
    labels = {first_policies.INSTANCE_TYPE: shape.shape.instances[0]} if shape.shape.instances else {}
    labels |= {shape.shape.label: "true"} if shape.shape.label else {}
    for index in range(nodes):
        domains = {key: f"domain-{level}" for level, key in enumerate(compiled.list_domain_keys(fabric.placement))}
        name = f"{shape.profile.name}-{shape.shape.fabric}-{index}"
        amounts = {"cpu": "96", **resources}
        metadata = {"name": name, "labels": {**domains, **labels}}
        trees[Kind.NODE].append({"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})
    for pod in pods:
        annotations = pod["metadata"].get("annotations", {})
        for selection in network_selection.parse_networks(annotations.get(names.NETWORKS, ""), "default"):
            trees[Kind.NETWORK].append(_build_network(*selection.key))
        for item in yaml.safe_load(annotations.get(first_policies.GKE_INTERFACES, "[]")):
            trees[Kind.GKE_NETWORK].append({"metadata": {"name": item["network"]}})
    trees[Kind.DEVICE_CLASS] = [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        for name, expression in _list_classes(fabric).items()
    ]
    return trees


def read(trees: dict[Kind, list[Tree]]) -> first_policies.Cluster:
    """Return the objects as the command reads them."""
    views = first_policies.VIEWS.items()
    return first_policies.Cluster(
        {kind: [msgspec.convert(tree, view) for tree in trees[kind]] for kind, (_, view) in views}
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


def _list_classes(fabric: model.Fabric) -> dict[str, str]:
    """Return the expressions of the DeviceClasses that the fabric's claims name."""
    if fabric.claims is None:
        return {}
    return {
        fabric.claims.device_class: f'device.driver == "{objects.DRANET}"',
        "gpu.nvidia.com": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
    }


def build_slices(shape: comparison.Shape, nodes: list[Tree]) -> list[Tree]:
    """Return the ResourceSlices of nodes of this shape, if NICs are claims."""
    names = [node["metadata"]["name"] for node in nodes]
    claims = shape.fabric.claims
    if claims is None:
        return []
    if shape.shape.fabric in PUBLISHED:
        return [tree for name in names for tree in shapes.load(PUBLISHED[shape.shape.fabric]).build_slices(name)]
    return [_build_slice(name, [rail.device or "" for rail in shape.fabric.rails]) for name in names]


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
