"""Other webhooks change pods before and after railwright's: each addition of railwright is made exactly once."""

from collections import Counter

import admitting
import peers
import pytest
import pytest_asyncio
from plane import api, manifests, peer, waiting

from railwright.fabric.injection import facts

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  pool:
    transport: roce
    rails:
    - {{name: rail0, network: {namespace}/vf, resource: x.y/vf, device: mlx5_0}}
    - {{name: rail1, network: {namespace}/vf, device: mlx5_1}}
    security: {{capabilities: [IPC_LOCK]}}
  ib:
    transport: infiniband
    rails: [{{name: rail0, resource: x.y/hca, device: mlx5_0}}]
    mounts: {{sharedMemory: 1Gi}}
    env: {{NCCL_DEBUG: WARN}}
  file:
    transport: erdma
    rails: [{{name: rail0, resource: x.y/erdma}}]
  host:
    transport: pvrdma
    rails: [{{name: rail0, device: vmw0}}]
    mounts: {{devInfiniband: true}}
    security: {{privileged: true}}
"""
CASES = [  # the fabric, and what other webhooks do before and after ours
    ("pool", "prepend_sidecar,set_defaults", "reverse_containers,add_env_everywhere"),
    ("pool", "replace_networks", "add_volume,drop_record"),
    ("ib", "", "prepend_sidecar,append_sidecar,drop_record"),
    ("ib", "add_env_everywhere", "drop_last_variable,reverse_containers"),
    ("file", "add_volume", "set_defaults,prepend_sidecar"),
    ("host", "append_sidecar", "drop_networks,add_volume,add_env_everywhere"),
]


@pytest_asyncio.fixture(loop_scope="session")
async def shared_policy(plane, site, namespace):
    """Register our webhook between two others, in a namespace with networks; yield the policy."""
    for name, resource in (("vf", "x.y/vf"), ("theirs", "")):
        await plane.api.create(manifests.network(name, resource), namespace=namespace)
    text = POLICY.format(namespace=namespace)
    await site.install(text, namespace)
    others = peer.Peer(plane.api, plane.certificates, peers.ACTIONS)
    await others.start(namespace)
    await waiting.wait(lambda: is_seen_by_others(plane.api, namespace), describe="the other webhooks to be called")
    yield admitting.read_policy(text)
    await others.stop()


async def is_seen_by_others(client: api.Api, namespace: str) -> bool:
    annotations = {peer.BEFORE: "add_annotation", peer.AFTER: "append_sidecar"}
    created = await client.create(manifests.pod("probe", annotations=annotations), namespace=namespace, dry_run=True)
    assert created["metadata"]["annotations"].get("peer/seen") == "yes"
    assert created["spec"]["containers"][-1]["name"] == "logs"
    return True


@pytest.mark.parametrize(("fabric", "before", "after"), CASES)
async def test_a_pod_that_other_webhooks_change_too_gets_each_addition_once(
    plane, namespace, shared_policy, fabric, before, after
):
    keys = {peer.BEFORE: before, peer.AFTER: f"{after},add_annotation"}
    pod = manifests.pod("p", fabric, annotations=keys, schedulerName="nobody", automountServiceAccountToken=False)
    created = await plane.api.create(pod, namespace=namespace, dry_run=True)
    assert created["metadata"]["annotations"]["peer/seen"] == "yes"
    for container in created["spec"]["containers"]:
        for key, what in (("env", "name"), ("volumeMounts", "mountPath")):
            assert max(Counter(item[what] for item in container.get(key, [])).values(), default=1) == 1, container
    networks = {(namespace, "vf"): "x.y/vf", (namespace, "theirs"): None}
    at = facts.ClusterFacts(namespace=namespace, namespace_labels={}, networks=networks, offered=frozenset())
    again = admitting.plan_pod(created, shared_policy, at)
    assert again.rails
    assert again.changes == (), "one more call finds nothing to do"
