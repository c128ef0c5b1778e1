"""A gang of two pods whose claims ask for any two NICs, as a snapshot: their records say rail0 and rail1, their claims
hold rail1 and rail3 of the first node, and rail0 and rail2 of the second."""

import json
import pathlib
from typing import Any

import claimed
import devices
import msgspec
import yaml

from railwright.fabric import names

HELD = {"p-0": ("n1", (1, 3)), "p-1": ("n2", (0, 2))}  # pod -> node, rails
_ANY = 'has(device.attributes["dra.net"].rdmaDevice)'


def build_pod(name: str, on: str = "") -> dict[str, Any]:
    """Return a pod of the gang, as it was admitted."""
    tree: dict[str, Any] = json.loads(msgspec.json.encode(claimed.build_claiming_pod(name, on=on, group="g")))
    tree = {**{key: value for key, value in tree.items() if value is not None}, "apiVersion": "v1", "kind": "Pod"}
    record = {"version": "0", "fabric": claimed.FABRIC, "role": "worker", "rails": list(claimed.RAILS[:2])}
    tree["metadata"]["annotations"][names.INJECTION] = json.dumps(record)
    return tree


def _build_spec() -> dict[str, Any]:
    """Return the spec of the claims: requests nic0 and nic1 for any NIC."""
    requests = {f"nic{number}": (devices.NIC_CLASS, _ANY) for number in range(2)}
    spec: dict[str, Any] = claimed.build_claim("any", (), gpus=0, requests=requests)["spec"]
    return spec


def build_claim(pod: str) -> dict[str, Any]:
    """Return the claim of a pod."""
    on, rails = HELD[pod]
    tree = claimed.build_claim(f"{pod}-nics", (), gpus=0, pod_uid=f"uid-{pod}") | {"spec": _build_spec()}
    results = [
        {"request": f"nic{number}", "driver": "dra.net", "pool": on, "device": f"pci-0000-{devices.ROOTS[rail]}-1b-0"}
        for number, rail in enumerate(rails)
    ]
    consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
    tree["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": consumers}
    return tree


def list_objects() -> list[dict[str, Any]]:
    """Return all objects of the cluster."""
    nodes = [json.loads(msgspec.json.encode(claimed.build_claimed_node(name, "a"))) for name in ("n1", "n2")]
    trees: list[dict[str, Any]] = [{**tree, "apiVersion": "v1", "kind": "Node"} for tree in nodes]
    trees += [devices.GPU_CLASS, devices.NIC_CLASS, *devices.build_slices("n1"), *devices.build_slices("n2")]
    trees += [build_pod(pod, on) for pod, (on, _) in HELD.items()]
    template = claimed.build_template_tree("t", ())
    trees.append(template | {"metadata": {"name": "t", "namespace": "train"}, "spec": {"spec": _build_spec()}})
    return trees + [build_claim(pod) for pod in HELD]


def write(folder: pathlib.Path) -> None:
    """Write policy.yaml and snapshot.json."""
    (folder / "policy.yaml").write_text(yaml.safe_dump(claimed.build_document()))
    snapshot = {"apiVersion": "v1", "kind": "List", "items": list_objects()}
    (folder / "snapshot.json").write_text(json.dumps(snapshot))
