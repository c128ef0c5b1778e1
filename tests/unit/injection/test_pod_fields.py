"""Host network, scheduler, capabilities and privilege of a pod (docs/interface.md 3.4)."""

import pytest
from admitting import (
    admit_pod,
    build_facts,
    fabric,
    gpus,
    list_messages,
    plan_pod,
    pod,
    read_env,
    read_record,
)

HOST_RAILS = "[{name: rail0, device: mlx5_0}]"
ON_HOST = fabric(
    "    hostNetwork: true\n"
    "    mounts: {devInfiniband: true}\n    env: {UCX_TLS: tcp}\n    nccl: {addressRange: 10.0.0.0/8}\n",
    rails=HOST_RAILS,
)


def test_a_pod_on_the_host_network_of_its_fabric_gets_the_policys_interface_and_addresses():
    tree = admit_pod(pod(), ON_HOST)
    spec = tree["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"pod.hostNetwork", "pod.dnsPolicy"} <= {*read_record(tree)["added"]}
    assert read_env(tree)["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert read_env(tree)["NCCL_IB_ADDR_RANGE"] == "10.0.0.0/8"
    assert plan_pod(pod(), ON_HOST).warnings == ()


def test_a_pod_with_a_user_namespace_is_refused_on_the_host_network():
    outcome = plan_pod(pod(hostUsers=False), ON_HOST)
    assert outcome.reason == "security"
    assert "spec.hostUsers is false" in outcome.message
    assert "remove hostUsers" in outcome.message
    assert admit_pod(pod(hostUsers=True), ON_HOST)["spec"]["hostNetwork"] is True


def test_the_api_servers_default_dns_policy_counts_as_unset_and_no_other_does():
    assert admit_pod(pod(dnsPolicy="ClusterFirst"), ON_HOST)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    tree = admit_pod(pod(dnsPolicy="Default"), ON_HOST)
    assert (tree["spec"]["hostNetwork"], tree["spec"]["dnsPolicy"]) == (True, "Default")
    assert "pod.dnsPolicy" not in read_record(tree)["added"]


def test_a_pod_with_the_default_scheduler_gets_the_scheduler_of_the_fabric():
    placed = fabric("    placement: {schedulerName: railwright-scheduler}\n")
    for own in ({}, {"schedulerName": "default-scheduler"}):
        tree = admit_pod(pod(**own), placed)
        assert tree["spec"]["schedulerName"] == "railwright-scheduler"
        assert "pod.schedulerName" in read_record(tree)["added"]
    assert admit_pod(pod(schedulerName="volcano"), placed)["spec"]["schedulerName"] == "volcano"
    assert "schedulerName" not in admit_pod(pod(), fabric())["spec"]


# --- capabilities and privilege -----------------------------------------------------------------------------

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
