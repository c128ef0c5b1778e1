"""Capabilities, privilege and mounts under the namespace's pod-security level (docs/interface.md 3.4)."""

import pytest
from admitting import admit_pod, build_facts, fabric, gpus, list_messages, plan_pod, pod, read_skipped

LEVEL = "pod-security.kubernetes.io/enforce"
NO_PLUGIN = "[{name: rail0, device: vmw_pvrdma0}]"
HOST_PATH = "    mounts: {devInfiniband: true}\n"
PRIVILEGED = "    security: {privileged: true}\n"


def enforce_level(level: str):
    return build_facts(namespace_labels={LEVEL: level})


@pytest.mark.parametrize(
    "context",
    [None, {}, {"capabilities": {}}, {"capabilities": {"add": ["NET_RAW"]}}, {"capabilities": {"drop": ["ALL"]}}],
)
def test_a_capability_is_added_to_existing_ones(context):
    container = gpus(8) if context is None else gpus(8, securityContext=context)
    after = admit_pod(pod(container), fabric("    security: {capabilities: [IPC_LOCK, SYS_NICE]}\n"))
    capabilities = after["spec"]["containers"][0]["securityContext"]["capabilities"]
    before = ((context or {}).get("capabilities") or {}).get("add", [])
    assert capabilities["add"] == [*before, "IPC_LOCK", "SYS_NICE"]


def test_a_pod_with_host_ipc_keeps_the_hosts_shared_memory():
    """Ranks of one node recognize each other by the device of their /dev/shm, so the pod must not get its own."""
    policy = fabric("    mounts: {sharedMemory: 64Gi, devInfiniband: true}\n")
    after = admit_pod(pod(hostIPC=True), policy)
    assert [mount["mountPath"] for mount in after["spec"]["containers"][0]["volumeMounts"]] == ["/dev/infiniband"]
    assert "spec.hostIPC" in read_skipped(after)["mounts./dev/shm"]
    volume = {"name": "railwright-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert volume in admit_pod(pod(hostIPC=False), policy)["spec"]["volumes"]


@pytest.mark.parametrize(
    ("level", "added"),
    [
        ("privileged", ["IPC_LOCK", "NET_RAW", "NET_BIND_SERVICE", "KILL"]),
        ("baseline", ["NET_BIND_SERVICE", "KILL"]),
        ("restricted", ["NET_BIND_SERVICE"]),
        *((invalid, ["NET_BIND_SERVICE"]) for invalid in ("", "Baseline", "nonsense")),  # as for the API server
    ],
)
def test_only_capabilities_that_the_pod_security_level_allows_are_added_once_each(level, added):
    policy = fabric("    security: {capabilities: [IPC_LOCK, NET_RAW, NET_BIND_SERVICE, KILL, IPC_LOCK, KILL]}\n")
    after = admit_pod(pod(), policy, enforce_level(level))
    assert after["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == added


LOCKING = fabric("    security: {capabilities: [IPC_LOCK]}\n")


@pytest.mark.parametrize(
    ("spec", "context", "beginning"),
    [
        ({}, {}, ""),
        ({"hostUsers": True}, {"runAsUser": 0}, ""),
        ({"hostUsers": False}, {}, "spec.hostUsers is false: IPC_LOCK has no effect"),
        ({"securityContext": {"runAsUser": 1000}}, {}, "container c does not run as root: IPC_LOCK has no effect"),
        ({}, {"runAsUser": 1000, "capabilities": {"drop": ["IPC_LOCK"]}}, "container c drops IPC_LOCK by name"),
    ],
)
def test_a_capability_without_effect_is_added_with_a_warning(spec, context, beginning):
    tree = pod(gpus(8, securityContext=context), **spec)
    warnings = list_messages(plan_pod(tree, LOCKING))
    assert len(warnings) == bool(beginning)
    assert all(warning.startswith(beginning) for warning in warnings), warnings
    if "drop" not in context.get("capabilities", {}):
        added = admit_pod(tree, LOCKING)["spec"]["containers"][0]["securityContext"]["capabilities"]["add"]
        assert added == ["IPC_LOCK"]
    assert list_messages(plan_pod(tree, fabric())) == ()


def test_only_the_policy_can_make_a_pod_privileged_or_mount_a_host_path():
    after = admit_pod(pod(), fabric(HOST_PATH + PRIVILEGED, rails=NO_PLUGIN, transport="pvrdma"))
    container = after["spec"]["containers"][0]
    assert container["securityContext"] == {"privileged": True}
    assert container["volumeMounts"] == [{"name": "railwright-infiniband", "mountPath": "/dev/infiniband"}]
    assert after["spec"]["volumes"] == [{"name": "railwright-infiniband", "hostPath": {"path": "/dev/infiniband"}}]
