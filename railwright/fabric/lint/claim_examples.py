"""Builds the examples of rules about claims, as in manifests."""

from collections.abc import Mapping
from typing import Any

Request = Mapping[str, Any]


def build_request(name: str, device_class: str, expression: str = "", count: int = 1) -> Request:
    """Return a request."""
    kind: dict[str, Any] = {"deviceClassName": device_class}
    if count != 1:
        kind["count"] = count
    if expression:
        kind["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": kind}


def build_devices(*requests: Request, pair_by: str = "", **more: Any) -> Mapping[str, Any]:
    """Return `devices` of a claim. `pair_by`: attribute that the devices of all requests share."""
    devices: dict[str, Any] = {"requests": list(requests), **more}
    if pair_by:
        devices["constraints"] = [{"requests": [request["name"] for request in requests], "matchAttribute": pair_by}]
    return devices


PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
GPU = build_request("gpu0", "gpu.nvidia.com")
_PATH = 'device.attributes["dra.net"].rdmaDevice'
RAIL = build_request("rail0", "dranet", f'has({_PATH}) && {_PATH} == "mlx5_0"')
