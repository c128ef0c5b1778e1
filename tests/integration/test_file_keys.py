"""What is found in a pod is read into its environment (fileKeyRef): on a real API server the field stays intact."""

from plane import binaries, gangs, manifests, waiting

from webhook import file_keys

RAIL = manifests.RAILS[0]
POLICY = manifests.policy({"found": manifests.fabric([{"name": "rail0", "resource": RAIL}], resolve="auto")})
KNOWN = file_keys.is_known_to(binaries.release().kubernetes)


async def report_kubelet(plane, name: str, version: str) -> None:
    await plane.api.patch("Node", name, {"status": {"nodeInfo": {"kubeletVersion": version}}}, subresource="status")


def read_found(pod: dict) -> set[str]:
    """Return the variables that kubelet reads from the file."""
    (container,) = pod["spec"]["containers"]
    return {entry["name"] for entry in container["env"] if "fileKeyRef" in entry.get("valueFrom", {})}


async def test_a_pod_keeps_the_field_unless_a_node_of_its_fabric_is_old(plane, namespace, nodes, installed):
    await nodes.make("gpu-0", rails={RAIL: 1})
    expected = {"NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "NVSHMEM_ENABLE_NIC_PE_MAPPING"}
    expected.add("MORI_RDMA_DEVICES")
    tree = gangs.pod("p", rails={}, fabric="found")

    async def admit(*, is_read: bool):
        pod = await plane.api.create(tree, namespace=namespace, dry_run=True)
        return pod if read_found(pod) == (expected if is_read and KNOWN else set()) else None

    for version, is_read in (("v1.35.0", True), ("v1.34.9", False), ("v1.36.1+k3s1", True)):
        await report_kubelet(plane, "gpu-0", version)
        pod = await waiting.wait(lambda read=is_read: admit(is_read=read), describe=f"admission with kubelet {version}")
        assert pod["spec"]["initContainers"][0]["name"] == "railwright-preflight"
    await plane.api.create(tree, namespace=namespace)
    stored = await plane.api.get("Pod", "p", namespace)
    assert read_found(stored) == (expected if KNOWN else set())
