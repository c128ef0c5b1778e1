"""The preflight container: added if the policy enables it, with the ranks' view, and no further resources."""

import copy
import json

import admitting
import msgspec
import pytest
from admitting import admit_pod, build_facts, fabric, get_refusal, gpus, plan_pod, pod, read_record, read_skipped

from railwright.fabric import resources, views
from railwright.preflight import __main__ as program
from railwright.preflight import expected

NAME = "railwright-preflight"
NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
ON = "    resolve: always\n    preflight: {image: site/railwright:1, mtu: 4200}\n"
LEVEL = "pod-security.kubernetes.io/enforce"


def preflight(tree: dict) -> dict:
    first = tree["spec"]["initContainers"][0]
    assert first["name"] == NAME
    return first


def parse_arguments(tree: dict):
    """Return the arguments as the program itself reads them."""
    command = preflight(tree)["command"]
    assert command[:2] == ["railwright", "preflight"]
    return program._build_parser().parse_args(command[2:], expected.Expectations())


def test_the_init_container_is_the_first_and_has_the_values_of_the_policy():
    tree = pod(
        initContainers=[{"name": "fetch", "image": "i"}, {"name": "log", "image": "i", "restartPolicy": "Always"}]
    )
    after = admit_pod(tree, fabric(ON))
    assert [container["name"] for container in after["spec"]["initContainers"]] == [NAME, "fetch", "log"]
    assert preflight(after)["image"] == "site/railwright:1"
    arguments = parse_arguments(after)
    assert (arguments.transport, arguments.mtu, arguments.warn, arguments.non_root) == ("roce", 4200, False, False)
    assert arguments.rails == [
        expected.Rail(f"rail{k}", f"mlx5_{k}", f"net{k + 1}", resource=f"nvidia.com/mlx5_{k}") for k in range(2)
    ]
    assert (arguments.gid_index, arguments.address_range, arguments.isolated) == (None, None, False)
    assert preflight(after)["env"] == [NODE_NAME]
    assert {("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), ("NCCL_SOCKET_IFNAME", "=eth0")} <= set(arguments.settings)
    assert arguments.write == "/run/railwright"
    assert "preflight" in read_record(after)["added"]
    assert "preflight" not in read_record(after)["skipped"]


@pytest.mark.parametrize("place", ["initContainers", "containers"])
def test_a_container_of_the_user_with_the_name_of_the_preflight_is_refused(place):
    theirs = {"name": NAME, "image": "i", "command": ["sh", "-c", "railwright preflight"]}
    tree = pod(gpus(8), theirs) if place == "containers" else pod(initContainers=[theirs])
    assert f"spec.{place} has a container named {NAME}" in get_refusal(tree, fabric(ON))
    assert "rename it, or set annotation railwright.io/skip to preflight" in get_refusal(tree, fabric(ON))
    assert plan_pod(tree, fabric()).changes  # without a preflight nobody minds


# --- it sees what the ranks see ---------------------------------------------------------------------------


def test_the_preflight_requests_the_devices_of_one_target_container():
    limits = preflight(admit_pod(pod(), fabric(ON)))["resources"]["limits"]
    assert limits == {"nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    pool = "[{name: a, network: prod/vf, resource: x.y/vf}, {name: b, network: prod/vf, resource: x.y/vf}]"
    at = build_facts(networks={("prod", "vf"): "x.y/vf"})
    assert preflight(admit_pod(pod(), fabric(ON, rails=pool), at))["resources"]["requests"] == {"x.y/vf": "2"}
    own = gpus(1)
    own["resources"]["limits"]["nvidia.com/mlx5_0"] = "3"
    skipping = pod(own, annotations={"railwright.io/skip": "devices"})
    assert preflight(admit_pod(skipping, fabric(ON)))["resources"]["limits"] == {"nvidia.com/mlx5_0": "3"}


def test_the_preflight_gets_the_option_several_containers_if_several_request_injected_devices():
    assert parse_arguments(admit_pod(pod(), fabric(ON))).several_containers is False
    both = pod(gpus(4, "a"), gpus(4, "b"), annotations={"railwright.io/containers": "a,b"})
    assert parse_arguments(admit_pod(both, fabric(ON))).several_containers is True
    skipping = copy.deepcopy(both)
    skipping["metadata"]["annotations"]["railwright.io/skip"] = "devices"
    skipping["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mlx5_0"] = "1"
    assert parse_arguments(admit_pod(skipping, fabric(ON))).several_containers is False


@pytest.mark.parametrize(
    ("written", "interfaces"),
    [("", ["net1", "net2"]), ("other/x", ["net2", "net3"]), ("lan3@mine", ["net2", "mine"])],
)
def test_the_preflight_expects_rails_at_the_interfaces_that_multus_creates(written, interfaces):
    policy = fabric(ON)
    tree = pod(annotations={"k8s.v1.cni.cncf.io/networks": written} if written else {})
    at = build_facts(networks={("prod", "lan2"): None, ("prod", "lan3"): None, ("other", "x"): None})
    assert [rail.interface for rail in parse_arguments(admit_pod(tree, policy, at)).rails] == interfaces


def test_the_preflight_checks_the_device_list_of_the_user():
    after = admit_pod(pod(gpus(8, env=[{"name": "NCCL_IB_HCA", "value": "mlx5"}])), fabric(ON))
    assert preflight(after)["env"] == [{"name": "NCCL_IB_HCA", "value": "mlx5"}, NODE_NAME]


def test_a_dollar_in_a_value_is_escaped_so_that_kubelet_does_not_expand_it():
    after = admit_pod(pod(), fabric(ON + "    env: {NCCL_X: $(HOME)$}\n"))
    assert "NCCL_X=$$(HOME)$$" in preflight(after)["command"]


def test_the_preflight_gets_the_address_range_of_the_policy():
    policy = fabric(ON + "    nccl: {gidIndex: 3, addressRange: 192.168.0.0/16}\n    env: {NCCL_CROSS_NIC: '0'}\n")
    arguments = parse_arguments(admit_pod(pod(), policy))
    assert (arguments.gid_index, str(arguments.address_range), arguments.isolated) == (3, "192.168.0.0/16", True)
    assert parse_arguments(admit_pod(pod(hostNetwork=True), policy)).address_range is None
    negative = fabric(ON + "    nccl: {gidIndex: -1}\n")
    assert parse_arguments(admit_pod(pod(), negative)).gid_index is None
    vendors = fabric(ON + "    nccl: {vendorVariables: ['NCCL_IB_*', NCCL_NET]}\n")
    assert parse_arguments(admit_pod(pod(), vendors)).vendor_variables == ["NCCL_IB_*", "NCCL_NET"]


def test_the_preflight_has_the_device_files_and_privileges_of_the_ranks():
    policy = fabric(
        ON + "    mounts: {devInfiniband: true}\n    security: {privileged: true, capabilities: [IPC_LOCK]}\n",
        rails="[{name: rail0, device: vmw_pvrdma0}]",
        transport="pvrdma",
    )
    ours = preflight(admit_pod(pod(), policy))
    assert ours["volumeMounts"][0] == {"name": "railwright-infiniband", "mountPath": "/dev/infiniband"}
    assert ours["securityContext"]["privileged"] is True
    assert "allowPrivilegeEscalation" not in ours["securityContext"]  # the API server refuses it beside privileged
    assert parse_arguments(admit_pod(pod(), policy)).rails == [expected.Rail("rail0", "vmw_pvrdma0")]


@pytest.mark.parametrize(
    ("own", "of_pod", "non_root"),
    [
        ({}, {}, False),
        ({"runAsUser": 0}, {"runAsNonRoot": True}, True),
        ({"runAsUser": 1000}, {}, True),
        ({}, {"runAsUser": 1000}, True),
        ({"runAsUser": 0}, {"runAsUser": 1000}, False),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, False),
    ],
)
def test_the_preflight_gets_the_option_non_root_unless_the_ranks_run_as_root(own, of_pod, non_root):
    policy = fabric(ON + "    security: {capabilities: [IPC_LOCK]}\n")
    after = admit_pod(pod(gpus(8, securityContext=own), securityContext=of_pod), policy)
    assert parse_arguments(after).non_root is non_root
    assert preflight(after)["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


# --- a broken rail stops the pod, or only warns -----------------------------------------------------------


@pytest.mark.parametrize(("more", "warn"), [("", False), (", onFailure: fail", False), (", onFailure: warn", True)])
def test_key_on_failure_of_the_policy_decides_whether_a_broken_rail_stops_the_pod(more, warn):
    policy = fabric(ON.replace("mtu: 4200", f"mtu: 4200{more}"))
    assert parse_arguments(admit_pod(pod(), policy)).warn is warn


# --- it costs the pod nothing -----------------------------------------------------------------------------


def violations(container: dict) -> set[str]:
    """Return the violations of the Pod Security Standard `restricted` by a container."""
    context = container["securityContext"]
    capabilities = context.get("capabilities", {})
    wrong = {
        "privileged": context.get("privileged"),
        "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is not False,
        "drop": capabilities.get("drop") != ["ALL"],
        "add": set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"},
        "runAsNonRoot": context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0,
        "seccompProfile": context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"},
        "hostPath": "railwright-infiniband" in json.dumps(container.get("volumeMounts", [])),
    }
    return {name for name, is_wrong in wrong.items() if is_wrong}


@pytest.mark.parametrize(
    ("level", "expected_violations"), [("restricted", set()), ("baseline", set()), (None, {"add"})]
)
def test_the_init_container_passes_the_pod_security_level_of_its_namespace(level, expected_violations):
    policy = fabric(
        ON + "    security: {capabilities: [IPC_LOCK], privileged: true}\n    mounts: {devInfiniband: true}\n"
        if level
        else ON + "    security: {capabilities: [IPC_LOCK]}\n"
    )
    at = build_facts(namespace_labels={LEVEL: level} if level else {})
    assert violations(preflight(admit_pod(pod(), policy, at))) == expected_violations


def qos(spec: dict) -> str:
    """Kubernetes' ComputePodQOS: cpu and memory of all containers, init containers included."""
    every = [*spec["containers"], *spec.get("initContainers", [])]
    said = [(container.get("resources", {}), name) for container in every for name in ("cpu", "memory")]
    if not any(name in part for resources, name in said for part in resources.values()):
        return "BestEffort"
    guaranteed = all(
        name in resources.get("limits", {})
        and resources.get("requests", resources["limits"]).get(name, resources["limits"][name])
        == resources["limits"][name]
        for resources, name in said
    )
    return "Guaranteed" if guaranteed else "Burstable"


AMOUNTS = (
    {},
    {"cpu": "1"},
    {"memory": "1"},
    {"cpu": "10m", "memory": "20Mi"},
    {"cpu": "32", "memory": "1Gi", "nvidia.com/mlx5_0": "2"},
)


@pytest.mark.parametrize("init", AMOUNTS)
@pytest.mark.parametrize("limits", AMOUNTS)
@pytest.mark.parametrize("requests", [{}, {"cpu": "1"}])
def test_the_preflight_changes_neither_quota_nor_quality_of_service(requests, limits, init):
    rank = gpus(8) | {"resources": {"requests": {**limits, **requests}, "limits": {**limits, "nvidia.com/gpu": "8"}}}
    before = [
        {"name": "first", "image": "i", "resources": {"limits": init}},
        {"name": "sidecar", "image": "i", "resources": {"limits": init}, "restartPolicy": "Always"},
    ]
    tree = pod(rank, {"name": "other", "image": "i", "resources": {"limits": limits}}, initContainers=before)
    without, with_it = (admit_pod(tree, fabric(more))["spec"] for more in ("", ON))
    assert preflight({"spec": with_it})
    assert qos(with_it) == qos(without)
    # what quotas and schedulers count
    counted, expected_count = (
        resources.compute_requests(msgspec.convert(spec, views.PodSpec)) for spec in (with_it, without)
    )
    assert counted == expected_count


@pytest.mark.parametrize(
    ("more", "own", "checked"),
    [
        ("", {}, False),
        ("", {"nvidia.com/mlx5_0": "1"}, True),
        ("    mounts: {devInfiniband: true}\n", {}, True),
        ("    security: {privileged: true}\n", {}, True),
    ],
)
def test_without_injected_devices_the_preflight_is_added_only_for_the_users_own_devices(more, own, checked):
    container = gpus(8)
    container["resources"]["limits"] |= own
    tree = admit_pod(pod(container, annotations={"railwright.io/skip": "devices"}), fabric(ON + more))
    assert bool(tree["spec"].get("initContainers")) == checked
    if not checked:
        assert "leaves out the devices" in read_skipped(tree)["preflight"]


# --- who gets it ------------------------------------------------------------------------------------------

UNSTATED = "\n    - {name: rail0, network: prod/lan2, resource: nvidia.com/mlx5_0}"
INDEX = "    nccl: {gidIndex: 3}\n"
AUTO = "    resolve: auto\n"


@pytest.mark.parametrize(
    ("transport", "rails", "more", "wanted"),
    [
        ("roce", UNSTATED, AUTO, True),
        ("roce", admitting.RAILS, AUTO, True),  # UCX and Mooncake need the index
        ("roce", admitting.RAILS, AUTO + INDEX, False),
        ("roce", UNSTATED, "    resolve: never\n", False),
        ("roce", admitting.RAILS, "    resolve: always\n" + INDEX, True),
        ("infiniband", admitting.RAILS, AUTO, False),
        ("infiniband", UNSTATED, AUTO, True),
        ("erdma", UNSTATED, AUTO, True),
        ("efa", UNSTATED, AUTO, False),
        ("roce", UNSTATED, AUTO + "    nccl: {derive: false}\n", False),
    ],
)
def test_the_preflight_is_added_if_the_policy_does_not_state_all_values(transport, rails, more, wanted):
    after = admit_pod(pod(), fabric(more, rails=rails, transport=transport))
    assert ("initContainers" in after["spec"]) is wanted
    left_out = admit_pod(pod(annotations={"railwright.io/skip": "env"}), fabric(AUTO, rails=UNSTATED))
    assert "initContainers" not in left_out["spec"]


def test_the_preflight_uses_the_image_of_the_policy_or_else_the_webhooks_image():
    at = admitting.build_facts(image="registry/railwright@sha256:0")
    (container,) = admit_pod(pod(), fabric(AUTO), at)["spec"]["initContainers"]
    assert container["image"] == "registry/railwright@sha256:0"
    (container,) = admit_pod(pod(), fabric(AUTO + "    preflight: {image: own}\n"), at)["spec"]["initContainers"]
    assert container["image"] == "own"
