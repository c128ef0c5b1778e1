"""Builds a policy whose rails are claimed, and the claims and templates that railwright writes, for `devices`."""

from collections.abc import Mapping, Sequence
from typing import Any

import devices
import msgspec
from placing import LEAF, SPINE

from extender import state as states
from railwright.cluster import sinks
from railwright.fabric import names, node_views, views
from railwright.fabric.claims import inventory, objects
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import compiled, model

FABRIC = "roce"
RAILS = tuple(f"rail{number}" for number in range(4))
RAIL = tuple(names.name_resource(FABRIC, rail) for rail in RAILS)
GPU = "nvidia.com/gpu"
NIC_CLASS, GPU_CLASS = devices.NIC_CLASS["metadata"]["name"], devices.GPU_CLASS["metadata"]["name"]


def build_document(**placement: object) -> dict[str, Any]:
    """Return a policy document: four rails by RDMA device, GPUs by claims, pairs by PCIe root."""
    rails = [
        {"name": rail, "device": device, "interface": f"net{number}"}
        for number, (rail, device) in enumerate(zip(RAILS, devices.RDMA_DEVICES, strict=True))
    ]
    fabric = {
        "transport": "roce",
        "gpusPerNode": 8,
        "claims": {"deviceClass": NIC_CLASS, "acceleratorClass": GPU_CLASS},
        "rails": rails,
        "placement": {"domains": [LEAF, SPINE], **placement},
    }
    document = {"apiVersion": "railwright.io/v1alpha1", "defaultFabric": FABRIC}
    return {**document, "fabrics": {FABRIC: fabric}}


def policy(**placement: object) -> model.Policy:
    """Return the policy of `build_document`."""
    document = msgspec.convert(build_document(**placement), model.PolicyDocument)
    return model.Policy(document=document, digest="sha256:claims")


def build_requests(rails: Sequence[int], *, gpus: int) -> dict[str, Any]:
    """Return `devices` of a claim: a request for each rail and GPU. Rails are paired with GPUs while there are any."""
    fabric = compiled.compile_claims(FABRIC, policy().document)
    assert fabric is not None
    selectors = {rail: [{"cel": {"expression": fabric.rails[rail].expression}}] for rail in RAILS}
    requests = [{"name": f"gpu{number}", "exactly": {"deviceClassName": GPU_CLASS}} for number in range(gpus)]
    requests += [
        {"name": RAILS[rail], "exactly": {"deviceClassName": NIC_CLASS, "selectors": selectors[RAILS[rail]]}}
        for rail in rails
    ]
    pairs = [
        {"requests": [f"gpu{number}", RAILS[rail]], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        for number, rail in enumerate(rails[:gpus])
    ]
    return {"requests": requests, "constraints": pairs}


def build_template_tree(name: str, rails: Sequence[int]) -> dict[str, Any]:
    """Return a ResourceClaimTemplate with a GPU for each rail."""
    spec = {"devices": build_requests(rails, gpus=len(rails))}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return {**kind, "metadata": {"name": name}, "spec": {"spec": spec}}


def build_template(name: str, rails: Sequence[int]) -> objects.ResourceClaimTemplate:
    """Return a template of namespace train as a watch decodes it."""
    tree = build_template_tree(name, rails)
    tree["metadata"]["namespace"] = "train"
    return msgspec.convert(tree, objects.ResourceClaimTemplate)


def build_claim(
    name: str,
    rails: Sequence[int],
    *,
    gpus: int,
    pod_uid: str = "",
    on: str = "",
    first_gpu: int = 0,
    requests: Mapping[str, tuple[Mapping[str, Any], str]] | None = None,
) -> dict[str, Any]:
    """Return a claim of these rails, allocated on the node `on`. `requests` are further ones: class, expression."""
    asked = build_requests(rails, gpus=gpus)
    asked["requests"] += [
        {
            "name": request,
            "exactly": {
                "deviceClassName": device_class["metadata"]["name"],
                "selectors": [{"cel": {"expression": expression}}],
            },
        }
        for request, (device_class, expression) in (requests or {}).items()
    ]
    results = [(f"gpu{number}", "gpu.nvidia.com", f"gpu-{first_gpu + number}") for number in range(gpus)]
    results += [(RAILS[rail], "dra.net", f"pci-0000-{devices.ROOTS[rail]}-1b-0") for rail in rails]
    tree = devices.build_claim(name, {}, pod_uid=pod_uid)
    tree["spec"] = {"devices": asked}
    if on:
        allocated = [
            {"request": request, "driver": driver, "pool": on, "device": device} for request, driver, device in results
        ]
        consumers = [{"resource": "pods", "name": name, "uid": pod_uid}] if pod_uid else []
        tree["status"] = {"allocation": {"devices": {"results": allocated}}, "reservedFor": consumers}
    return tree


def build_claiming_pod(
    name: str, *, on: str = "", templates: Sequence[str] = ("t",), claims: Sequence[str] = (), group: str = ""
) -> views.Pod:
    """Return a pod with claims, from templates and by name; its UID is uid-NAME.

    The entries of templates are railwright, railwright-2 and so on, the others have the names of their claims.
    """
    entries = ["railwright" if number == 1 else f"railwright-{number}" for number in range(1, len(templates) + 1)]
    tree = {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"uid-{name}",
            "labels": {names.FABRIC: FABRIC},
            "annotations": {"scheduling.k8s.io/group-name": group} if group else {},
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "resourceClaims": [
                {"name": entry, "resourceClaimTemplateName": template}
                for entry, template in zip(entries, templates, strict=True)
            ]
            + [{"name": claim, "resourceClaimName": claim} for claim in claims],
        },
        "status": {"phase": "Running" if on else "Pending"},
    }
    return msgspec.convert(tree, views.Pod)


def build_claimed_node(name: str, leaf: str = "") -> node_views.Node:
    """Return a node without devices of device plugins."""
    labels = {LEAF: leaf, SPINE: "s0"} if leaf else {}
    tree = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"}},
    }
    return msgspec.convert(tree, node_views.Node)


def name_devices(cluster: cluster_state.ClusterState) -> None:
    """Add the device classes, and count devices by the rails of the policy."""
    classes = devices.read_classes(devices.GPU_CLASS, devices.NIC_CLASS)
    cluster.change_devices(lambda known: known.class_sink.replace(classes))
    fabrics = compiled.list_claimed_fabrics(policy().document)
    cluster.change_devices(lambda known: known.replace_fabrics(fabrics))


def build_inventory(*nodes: str) -> inventory.Inventory:
    """Return the devices of these nodes, counted by the rails of the policy."""
    known = devices.build_inventory(*nodes)
    known.replace_fabrics(compiled.list_claimed_fabrics(policy().document))
    return known


def add_slices(cluster: cluster_state.ClusterState, *nodes: str, **kinds: Any) -> None:
    """Publish the slices of these nodes, as `devices.build_slices` makes them."""
    for offered in devices.read_slices(*(tree for node in nodes for tree in devices.build_slices(node, **kinds))):
        cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))


def add_template(cluster: cluster_state.ClusterState, name: str, rails: Sequence[int]) -> None:
    """Create a template with a GPU for each rail."""
    cluster.change_devices(lambda known: known.template_sink.upsert(build_template(name, rails)))


def build_request(
    cluster: cluster_state.ClusterState,
    pod: views.Pod,
    nodes: Sequence[str],
    **placement: object,
) -> scheduling_request.SchedulingRequest:
    """Return a request about a pod."""
    return scheduling_request.build_request(
        pod,
        policy(**placement),
        {},
        nodes,
        requests=cluster.compute_requests(pod),
    )


def get_sink(state: states.State, kind: str) -> sinks.Sink[Any]:
    """Return the sink of the extender's watch of a kind."""
    return next(watch.sink for watch in states.list_watches(state) if watch.kind.snapshot_kind == kind)
