"""Effect of extenders and claims on kube-scheduler's batching of equal pods (OpportunisticBatching, on since 1.35).

A pod with the signature of the previous one goes to the next node by that pod's scores, if such pods fill a node each.
"""

import asyncio
import re

import pytest
import pytest_asyncio
import shapes
from plane import binaries, claim_gangs, components, gangs, manifests

COUNT = 12
# kube-scheduler's own default constraints of PodTopologySpread exclude every pod from batching.
NO_DEFAULT_SPREAD = {
    "PodTopologySpread": {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "PodTopologySpreadArgs",
        "defaultingType": "List",
        "defaultConstraints": [],
    }
}
_HINTS = re.compile(r'^scheduler_batch_attempts_total\{[^}]*result="hint_used"[^}]*\} (\S+)$', re.MULTILINE)
pytestmark = pytest.mark.skipif(
    binaries.release().kubernetes.startswith("1.34."), reason="OpportunisticBatching begins with 1.35"
)


async def count_hints(plane):
    """Return how many pods were placed by the scores of the pod before since kube-scheduler started."""
    url = f"https://{components.LOOPBACK}:{plane.parts.port['kube-scheduler']}/metrics"
    async with plane.session.get(url) as response:
        text = await response.text()
    return sum(float(value) for value in _HINTS.findall(text))


async def place(plane, namespace, pods):
    """Create pods at once and wait until all are bound; return how many were batched."""
    before = await count_hints(plane)
    await gangs.create(plane.api, namespace, [{**pod, "spec": {**pod["spec"], **_GATE}} for pod in pods])
    await asyncio.gather(
        *(
            plane.api.patch("Pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}}, namespace)
            for pod in pods
        )
    )
    await gangs.bound(plane.api, namespace, len(pods))
    return await count_hints(plane) - before


_GATE = {"schedulingGates": [{"name": "test/together"}]}  # together, because scores are reused for half a second


@pytest_asyncio.fixture(loop_scope="session")
async def place_whole_node_pods(plane, namespace, nodes):
    """`await place_whole_node_pods()`: how many of equal pods that take all GPUs of a node were batched."""
    await asyncio.gather(*(nodes.make(f"batch-{number:02}", rails={}) for number in range(COUNT)))
    return lambda: place(plane, namespace, [gangs.pod(f"p{number}", rails={}) for number in range(COUNT)])


async def test_the_default_profile_batches_no_pod(place_whole_node_pods):
    assert await place_whole_node_pods() == 0


async def test_equal_pods_are_batched_without_default_spread_constraints(place_whole_node_pods, schedulers):
    await schedulers.kube(plugins=NO_DEFAULT_SPREAD)
    assert await place_whole_node_pods() > 0


async def test_a_profile_with_an_extender_batches_no_pod(plane, place_whole_node_pods, schedulers):
    # pods without a managed resource: the extender is never called, so that it need not run
    await schedulers.kube(gangs.entry("http://127.0.0.1:9", ignored=True), plugins=NO_DEFAULT_SPREAD)
    assert await place_whole_node_pods() == 0
    log = plane.processes["kube-scheduler"].output()
    assert "Disabling signatures for profile because it has extenders configured" in log


async def test_pods_with_claims_are_never_batched(plane, namespace, schedulers):
    await schedulers.kube(plugins=NO_DEFAULT_SPREAD)
    shape = shapes.load("aks-gb300")
    requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": len(shape.gpus)}}]
    async with claim_gangs.offer(plane, shape, COUNT):
        template = manifests.claim_template("node", {"requests": requests})
        await plane.api.create(template, namespace=namespace)
        pods = [claim_gangs.build_claiming_pod(f"p{number}", "g", "node") for number in range(COUNT)]
        assert await place(plane, namespace, pods) == 0
        await plane.remove_pods(namespace)
