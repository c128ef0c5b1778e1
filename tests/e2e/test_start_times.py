"""How long a pod with four networks takes to start on a real node, and what admission adds to it."""

import statistics
import time

from realnode import layout, pods, rails

PODS = 7
LIMIT_SECONDS = 5.0  # from the request until kubelet reports the pod as ready
ADMISSION_SECONDS = 0.25  # added to the request; milliseconds on an idle machine
NODE = layout.NODES[0]


async def measure(installed, pod: dict) -> tuple[float, float]:
    """Return the seconds of the request, and until the pod is ready. It is deleted again."""
    name = pod["metadata"]["name"]
    begun = time.perf_counter()
    await installed.plane.api.create(pod, namespace=rails.NAMESPACE)
    created = time.perf_counter() - begun
    await pods.wait_ready(installed.plane.api, rails.NAMESPACE, name)
    ready = time.perf_counter() - begun
    await installed.plane.api.delete("Pod", name, rails.NAMESPACE, grace=0)
    return created, ready


def describe_labelled(name: str) -> dict:
    return pods.describe(name, "roce", nodeName=NODE)


def describe_handwritten(name: str) -> dict:
    """Return a pod with the same networks and devices, written by hand and opted out."""
    names = [f"rdma-net-ipam-{layout.name_interface(rail)}" for rail in range(layout.RAILS)]
    devices = {f"nvidia.com/{layout.name_device(rail)}": "1" for rail in range(layout.RAILS)}
    limits = {"nvidia.com/gpu": "1", **devices}
    annotations = {"k8s.v1.cni.cncf.io/networks": ",".join(names)}
    return pods.describe(name, "none", nodeName=NODE, limits=limits, annotations=annotations)


async def test_pod_with_four_networks_starts_in_five_seconds(installed):
    times = {}
    for describe in (describe_labelled, describe_handwritten):
        samples = [await measure(installed, describe(f"{describe.__name__[9:]}-{index}")) for index in range(PODS)]
        times[describe.__name__[9:]] = [statistics.median(column) for column in zip(*samples, strict=True)]
    for kind, (request, ready) in times.items():
        print(f"{kind}: request {request:.3f} s, ready after {ready:.2f} s, medians of {PODS}")
    assert times["labelled"][1] < LIMIT_SECONDS
    assert times["labelled"][0] - times["handwritten"][0] < ADMISSION_SECONDS
