"""A node's topology manager: its policy, the devices that kubelet has given away, and an exporter's report of them."""

import dataclasses
import json
import pathlib
import signal
from collections.abc import Collection, Mapping
from typing import Any

from plane import api, waiting

from realnode import hardware, layout, node, services

KIND = "topology.node.k8s.io/v1alpha2/NodeResourceTopology"
_CHECKPOINT = "kubelet/device-plugins/kubelet_internal_checkpoint"


async def set_policy(client: api.Api, server: node.Node, policy: str, scope: str) -> None:
    """Restart kubelet with another policy; returns when the node offers all devices again.

    No pod of the node may have devices.
    """
    server.settings = dataclasses.replace(server.settings, topology_policy=policy, topology_scope=scope)
    server.write("/etc/kubelet.json", json.dumps(services.configure_kubelet(server.settings)))
    log = server.logs / "deviceplugin.log"
    registrations = log.read_text().count("registered, error <nil>")
    resources = hardware.list_resources()
    await server.signal("kubelet", signal.SIGKILL)

    async def is_back() -> bool:
        assert log.read_text().count("registered, error <nil>") >= registrations + len(resources)
        allocatable = (await client.get("Node", server.name))["status"]["allocatable"]
        offered = {resource["name"]: str(len(resource["devices"])) for resource in resources}
        assert {name: allocatable.get(name) for name in offered} == offered
        return True

    await waiting.wait(is_back, seconds=60, describe=f"kubelet of {server.name} with policy {policy}")


def read_devices(server: node.Node, pods: Collection[str]) -> dict[str, dict[str, dict[int, int]]]:
    """Return how many devices kubelet has given to each of these pods (UIDs): by pod, resource and NUMA node."""
    devices: dict[str, dict[str, dict[int, int]]] = {}
    for entry in _read_entries(server):
        if entry["PodUID"] in pods:
            by_zone = devices.setdefault(entry["PodUID"], {}).setdefault(entry["ResourceName"], {})
            for zone, ids in entry["DeviceIDs"].items():
                by_zone[int(zone)] = by_zone.get(int(zone), 0) + len(ids)
    return devices


def list_containers(server: node.Node, pod: str) -> set[str]:
    """Return the containers of a pod (UID) that have devices: kubelet admits one after another."""
    return {entry["ContainerName"] for entry in _read_entries(server) if entry["PodUID"] == pod}


def _read_entries(server: node.Node) -> list[dict[str, Any]]:
    path = pathlib.Path(server.settings.folder) / _CHECKPOINT
    entries: list[dict[str, Any]] = json.loads(path.read_text())["Data"]["PodDeviceEntries"] or []
    return entries


def describe_report(server: node.Node, pods: Collection[str]) -> api.Object:
    """Return the node's NodeResourceTopology as NFD's topology updater writes it; `pods` have the devices in use."""
    used = read_devices(server, pods).values()
    zones = []
    for zone in range(layout.NUMA_NODES):
        resources = []
        for resource in hardware.list_resources():
            capacity = sum(device["numa"] == zone for device in resource["devices"])
            in_use = sum(devices.get(resource["name"], {}).get(zone, 0) for devices in used)
            if capacity:
                amounts = {"capacity": capacity, "allocatable": capacity, "available": capacity - in_use}
                resources.append({"name": resource["name"]} | {key: str(value) for key, value in amounts.items()})
        zones.append({"name": f"node-{zone}", "type": "Node", "resources": resources})
    attributes = {
        "topologyManagerPolicy": server.settings.topology_policy,
        "topologyManagerScope": server.settings.topology_scope,
    }
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": server.name},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": zones,
    }


async def write_report(client: api.Api, report: Mapping[str, Any]) -> None:
    """Create or update a node's report."""
    await client.put(dict(report))
