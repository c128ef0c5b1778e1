"""Networks of rails in the pod's annotation (docs/interface.md 3.1)."""

import pytest
from admitting import (
    RAILS,
    admit_pod,
    build_facts,
    fabric,
    get_refusal,
    list_messages,
    plan_pod,
    pod,
    read_env,
    read_record,
    read_skipped,
)

NETWORKS = "k8s.v1.cni.cncf.io/networks"


def networks(tree: dict) -> str:
    return tree["metadata"].get("annotations", {}).get(NETWORKS, "")


def test_a_pod_on_the_host_network_gets_devices_and_environment_and_a_warning():
    """Multus ignores such a pod, so that its sandbox starts without the network that its author names."""
    own = pod(hostNetwork=True, annotations={NETWORKS: "prod/gone"})
    (warning,) = list_messages(plan_pod(own, fabric()))
    tree = admit_pod(own, fabric())
    assert tree["metadata"]["annotations"][NETWORKS] == "prod/gone"
    assert NETWORKS not in admit_pod(pod(hostNetwork=True), fabric())["metadata"]["annotations"]
    assert "nvidia.com/mlx5_0" in tree["spec"]["containers"][0]["resources"]["limits"]
    assert "NCCL_IB_HCA" in read_env(tree)
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"} & read_env(tree).keys()
    assert "hostNetwork is true" in warning
    assert read_skipped(tree)["networks"] == warning


@pytest.mark.parametrize(
    ("rails", "derive", "warned"),
    [
        ("[{name: r, resource: x/y}]", False, False),
        ("[{name: r, resource: x/y}]", True, True),
        ("[{name: r, resource: x/y, network: prod/lan2}]", False, True),
    ],
)
def test_host_network_causes_a_warning_only_if_the_pod_loses_injected_networks(rails, derive, warned):
    policy = fabric(f"    nccl: {{derive: {str(derive).lower()}}}\n", rails=rails)
    warnings = list_messages(plan_pod(pod(hostNetwork=True), policy, build_facts(networks=None)))
    assert any("hostNetwork is true" in warning for warning in warnings) is warned
    assert derive or not any("NCCL_SOCKET_IFNAME" in warning for warning in warnings)


def test_parts_named_in_the_skip_annotation_are_left_out_and_recorded():
    policy = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n    resolve: always\n")
    skip = "networks,devices,mounts,security,env,preflight"
    tree = admit_pod(pod(annotations={"railwright.io/skip": skip}), policy)
    assert read_skipped(tree) == dict.fromkeys(skip.split(","), "by annotation railwright.io/skip")
    assert read_record(tree)["added"] == []
    plain = pod(annotations={"railwright.io/skip": skip})
    del tree["metadata"]["annotations"]["railwright.io/injection"]
    assert tree == plain


def test_a_pod_that_skips_networks_gets_warnings_about_its_own_networks():
    tree = pod(annotations={"railwright.io/skip": "networks", NETWORKS: "absent"})
    (warning,) = list_messages(plan_pod(tree, fabric()))
    assert "NetworkAttachmentDefinition prod/absent of entry 1 does not exist" in warning


R1, NET1 = (f"[{{name: rail0, network: prod/lan2, interface: {name}}}]" for name in ("r1", "net1"))


@pytest.mark.parametrize(
    ("written", "rails", "entry", "problem", "network", "taken"),
    [
        ("a@net2", RAILS, 1, "asks for interface 'net2'", "prod/lan2", "net2, net3"),
        ("a,b@net4", RAILS, 2, "asks for interface 'net4'", "prod/lan3", "net3, net4"),
        ("a@r1", R1, 1, "asks for interface 'r1'", "prod/lan2", "r1"),
        ("a", NET1, 1, "is given the automatic name 'net1'", "prod/lan2", "net1"),
    ],
)
def test_a_refusal_for_an_interface_name_that_a_rail_has_names_the_entry_of_the_user(
    written, rails, entry, problem, network, taken
):
    message = get_refusal(pod(annotations={NETWORKS: written}), fabric(rails=rails))
    assert message == (
        f"Pod prod/p: annotation {NETWORKS} '{written}': entry {entry}: {problem}, which railwright gives to network "
        f"{network} of the fabric: its networks come after yours and take {taken}; give entry {entry} another interface"
    )


def test_the_refusal_of_two_rails_with_one_interface_name_names_interface_in_the_policy():
    """The policy is valid: only a network of the user shifts the rail's automatic name."""
    policy = fabric(rails="[{name: rail0, network: prod/lan2}, {name: rail1, network: prod/lan3, interface: net2}]")
    message = get_refusal(pod(annotations={NETWORKS: "a@ok"}), policy)
    expected = (
        "network prod/lan3 of the fabric: asks for interface 'net2', which is the interface of network prod/lan2; "
        "correct `interface` of its rail in the policy"
    )
    assert expected in message
