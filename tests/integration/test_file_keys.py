"""Variables that preflight finds reach a pod's environment by `fileKeyRef`: a real API server keeps the field."""

import peers
import pytest
from plane import binaries, gangs, manifests, peer, waiting

from webhook import file_keys

RAIL = manifests.RAILS[0]
POLICY = manifests.policy({"found": manifests.fabric([{"name": "rail0", "resource": RAIL}], resolve="auto")})
KNOWN = file_keys.is_supported_by(binaries.release().kubernetes)


async def set_kubelet_version(plane, name: str, version: str) -> None:
    await plane.api.patch("Node", name, {"status": {"nodeInfo": {"kubeletVersion": version}}}, subresource="status")


def read_found(pod: dict) -> set[str]:
    """Return the variables that kubelet reads from the file."""
    (container,) = pod["spec"]["containers"]
    return {entry["name"] for entry in container["env"] if "fileKeyRef" in entry.get("valueFrom", {})}


async def test_a_pod_keeps_file_key_refs_unless_a_node_of_its_fabric_is_too_old(plane, namespace, nodes, installed):
    await nodes.make("gpu-0", rails={RAIL: 1})
    expected = {"NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "NVSHMEM_ENABLE_NIC_PE_MAPPING"}
    expected.add("MORI_RDMA_DEVICES")
    tree = gangs.pod("p", rails={}, fabric="found")

    async def admit(*, is_read: bool):
        pod = await plane.api.create(tree, namespace=namespace, dry_run=True)
        return pod if read_found(pod) == (expected if is_read and KNOWN else set()) else None

    for version, is_read in (("v1.35.0", True), ("v1.34.9", False), ("v1.36.1+k3s1", True)):
        await set_kubelet_version(plane, "gpu-0", version)
        pod = await waiting.wait(lambda read=is_read: admit(is_read=read), describe=f"admission with kubelet {version}")
        assert pod["spec"]["initContainers"][0]["name"] == "railwright-preflight"
    await plane.api.create(tree, namespace=namespace)
    stored = await plane.api.get("Pod", "p", namespace)
    assert read_found(stored) == (expected if KNOWN else set())


@pytest.mark.skipif(not KNOWN, reason="the API server does not know fileKeyRef")
@pytest.mark.parametrize("reinvocation", ["Never", "IfNeeded"])
async def test_a_pod_gets_files_if_a_webhook_with_an_older_api_drops_file_key_refs(
    plane, namespace, nodes, installed, reinvocation
):
    await nodes.make("gpu-0", rails={RAIL: 1})
    await set_kubelet_version(plane, "gpu-0", "v1.36.0")
    tree = gangs.pod("p", rails={}, fabric="found")
    tree["metadata"].setdefault("annotations", {})[peer.AFTER] = "drop_file_keys"
    other = peer.Peer(plane.api, plane.certificates, {"drop_file_keys": peers.drop_file_keys})
    await other.start(namespace, reinvocation=reinvocation)

    async def admit():
        created = await plane.api.create(tree, namespace=namespace, dry_run=True)
        env = {entry["name"]: entry.get("value") for entry in created["spec"]["containers"][0]["env"]}
        return env if "NCCL_CONF_FILE" in env and plane.api.warnings else None

    try:
        env = await waiting.wait(admit, describe="a pod that both webhooks have changed")
        assert any("another webhook dropped valueFrom.fileKeyRef" in text for text in plane.api.warnings)
    finally:
        await other.stop()
    assert "NCCL_IB_HCA" not in env
