"""The preflight container: added if the policy enables it, with the view of the ranks, at no cost to the pod."""

import copy
import json

import msgspec
import pytest
from admitting import admitted, fabric, gpus, known, planned, pod, record, refusal, skipped
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import resources, views
from railwright.preflight import __main__ as program
from railwright.preflight import expected

NAME = "railwright-preflight"
ON = "    preflight: {enabled: true, image: site/railwright:1, mtu: 4200}\n"
LEVEL = "pod-security.kubernetes.io/enforce"


def preflight(tree: dict) -> dict:
    last = tree["spec"]["initContainers"][-1]
    assert last["name"] == NAME
    return last


def parse_arguments(tree: dict):
    """Return the arguments as the program itself reads them."""
    command = preflight(tree)["command"]
    assert command[:2] == ["railwright", "preflight"]
    return program._build_parser().parse_args(command[2:])


def test_the_init_container_comes_last_with_the_policys_expectations():
    tree = pod(
        initContainers=[{"name": "fetch", "image": "i"}, {"name": "log", "image": "i", "restartPolicy": "Always"}]
    )
    after = admitted(tree, fabric(ON))
    assert [container["name"] for container in after["spec"]["initContainers"]] == ["fetch", "log", NAME]
    assert preflight(after)["image"] == "site/railwright:1"
    arguments = parse_arguments(after)
    assert (arguments.transport, arguments.mtu, arguments.warn, arguments.non_root) == ("roce", 4200, False, False)
    assert arguments.rail == [expected.Rail("rail0", "mlx5_0", "net1"), expected.Rail("rail1", "mlx5_1", "net2")]
    assert preflight(after)["env"] == [{"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1"}]
    assert "preflight" in record(after)["added"]
    assert "preflight" not in record(after)["skipped"]


@pytest.mark.parametrize(
    ("annotations", "by", "why"),
    [
        ({}, fabric(), "disabled by policy"),
        ({"railwright.io/skip": "preflight"}, fabric(ON), "by annotation railwright.io/skip"),
        ({}, fabric(ON, transport="tcp", rails=""), "no rails"),
    ],
)
def test_a_left_out_preflight_has_a_reason_in_the_record(annotations, by, why):
    after = admitted(pod(annotations=annotations), by)
    assert skipped(after)["preflight"] == why
    assert "initContainers" not in after["spec"]


@pytest.mark.parametrize("level", [None, "baseline", "restricted"])
def test_admitting_an_admitted_pod_again_changes_nothing(level):
    policy = fabric(ON + "    security: {capabilities: [IPC_LOCK]}\n    nccl: {delivery: both}\n")
    at = known(namespace_labels={LEVEL: level} if level else {})
    once = admitted(pod(), policy, at)
    assert planned(once, policy, at).changes == ()
    touched = copy.deepcopy(once)
    preflight(touched).update({"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "Always"})
    touched["spec"]["initContainers"].append({"name": "after-us", "image": "i"})
    assert planned(touched, policy, at).changes == ()


@pytest.mark.parametrize("place", ["initContainers", "containers"])
def test_a_users_container_of_that_name_is_refused_with_the_fix(place):
    theirs = {"name": NAME, "image": "i", "command": ["sh", "-c", "railwright preflight"]}
    tree = pod(gpus(8), theirs) if place == "containers" else pod(initContainers=[theirs])
    assert f"spec.{place} has a container named {NAME}" in refusal(tree, fabric(ON))
    assert "rename it, or set annotation railwright.io/skip to preflight" in refusal(tree, fabric(ON))
    assert planned(tree, fabric()).changes  # without a preflight nobody minds


def test_a_users_own_preflight_container_is_not_railwrights():
    theirs = {"name": "mine", "image": "i", "command": ["railwright", "preflight", "--transport", "roce"]}
    assert preflight(admitted(pod(initContainers=[theirs]), fabric(ON)))


# --- it sees what the ranks see ---------------------------------------------------------------------------


def test_the_init_container_requests_the_devices_of_one_chosen_container():
    limits = preflight(admitted(pod(), fabric(ON)))["resources"]["limits"]
    assert limits == {"nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    pool = "[{name: a, network: prod/vf, resource: x.y/vf}, {name: b, network: prod/vf, resource: x.y/vf}]"
    at = known(networks={("prod", "vf"): "x.y/vf"})
    assert preflight(admitted(pod(), fabric(ON, rails=pool), at))["resources"]["requests"] == {"x.y/vf": "2"}
    own = gpus(1)
    own["resources"]["limits"]["nvidia.com/mlx5_0"] = "3"
    skipping = pod(own, annotations={"railwright.io/skip": "devices"})
    assert preflight(admitted(skipping, fabric(ON)))["resources"]["limits"] == {"nvidia.com/mlx5_0": "3"}


@pytest.mark.parametrize(
    ("written", "wide", "interfaces"),
    [
        ("", 0, ["net1", "net2"]),
        ("", 2, ["net3", "net4"]),
        ("other/x", 0, ["net2", "net3"]),
        ("lan3@mine", 0, ["net2", "mine"]),
    ],
)
def test_each_rail_is_expected_at_the_interface_that_multus_creates(written, wide, interfaces):
    policy = fabric(ON, top=f"clusterWideNetworks: {wide}\n")
    tree = pod(annotations={"k8s.v1.cni.cncf.io/networks": written} if written else {})
    at = known(networks={("prod", "lan2"): None, ("prod", "lan3"): None, ("other", "x"): None})
    assert [rail.interface for rail in parse_arguments(admitted(tree, policy, at)).rail] == interfaces


def test_rails_of_one_network_have_an_interface_each_by_their_own_names():
    rails = "[{name: a, network: o/vf, interface: r0}, {name: b, network: o/vf, interface: r1}]"
    at = known(networks={("o", "vf"): "x.y/vf"})
    tree = pod(annotations={"k8s.v1.cni.cncf.io/networks": "o/vf@r1"})
    assert [rail.interface for rail in parse_arguments(admitted(tree, fabric(ON, rails=rails), at)).rail] == [
        "r0",
        "r1",
    ]


def test_on_the_host_network_no_interface_is_expected():
    assert parse_arguments(admitted(pod(hostNetwork=True), fabric(ON))).rail == [
        expected.Rail("rail0", "mlx5_0"),
        expected.Rail("rail1", "mlx5_1"),
    ]


def test_devices_that_only_the_node_decides_come_by_the_file():
    shapes = "nodeShapes:\n- {name: a, match: {g: a}, devices: {rail0: x0}}\n"
    after = admitted(pod(), fabric(ON, top=shapes))
    assert [rail.device for rail in parse_arguments(after).rail] == ["", ""]
    assert "env" not in preflight(after)
    assert [mount["mountPath"] for mount in preflight(after)["volumeMounts"]] == ["/etc/nccl.conf"]
    assert preflight(after)["volumeMounts"] == after["spec"]["containers"][0]["volumeMounts"]


def test_the_users_own_list_of_devices_is_checked():
    after = admitted(pod(gpus(8, env=[{"name": "NCCL_IB_HCA", "value": "mlx5"}])), fabric(ON))
    assert preflight(after)["env"] == [{"name": "NCCL_IB_HCA", "value": "mlx5"}]


def test_a_fixed_gid_index_is_checked_too():
    after = admitted(pod(), fabric(ON + "    nccl: {gidIndex: 3}\n"))
    assert {"name": "NCCL_IB_GID_INDEX", "value": "3"} in preflight(after)["env"]


def test_device_files_and_privilege_are_those_of_the_ranks():
    policy = fabric(
        ON + "    mounts: {devInfiniband: true}\n    security: {privileged: true, capabilities: [IPC_LOCK]}\n",
        rails="[{name: rail0, device: vmw_pvrdma0}]",
        transport="pvrdma",
    )
    ours = preflight(admitted(pod(), policy))
    assert ours["volumeMounts"] == [{"name": "railwright-infiniband", "mountPath": "/dev/infiniband"}]
    assert ours["securityContext"]["privileged"] is True
    assert "allowPrivilegeEscalation" not in ours["securityContext"]  # the API server refuses it beside privileged
    assert parse_arguments(admitted(pod(), policy)).rail == [expected.Rail("rail0", "vmw_pvrdma0")]


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
def test_a_capability_counts_only_where_the_ranks_are_root(own, of_pod, non_root):
    policy = fabric(ON + "    security: {capabilities: [IPC_LOCK]}\n")
    after = admitted(pod(gpus(8, securityContext=own), securityContext=of_pod), policy)
    assert parse_arguments(after).non_root is non_root
    assert preflight(after)["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


@pytest.mark.parametrize(("own", "counts"), [({}, True), ({"hostUsers": True}, True), ({"hostUsers": False}, False)])
def test_a_capability_does_not_count_in_a_user_namespace(own, counts):
    after = admitted(pod(**own), fabric(ON + "    security: {capabilities: [IPC_LOCK]}\n"))
    assert parse_arguments(after).non_root is not counts


# --- a broken rail stops the pod, or only warns -----------------------------------------------------------


@pytest.mark.parametrize(("more", "warn"), [("", False), (", onFailure: fail", False), (", onFailure: warn", True)])
def test_the_policy_says_whether_a_broken_rail_stops_the_pod(more, warn):
    policy = fabric(ON.replace("enabled: true", f"enabled: true{more}"))
    assert parse_arguments(admitted(pod(), policy)).warn is warn


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
    at = known(namespace_labels={LEVEL: level} if level else {})
    assert violations(preflight(admitted(pod(), policy, at))) == expected_violations


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


def read_spec(spec: dict) -> views.PodSpec:
    return msgspec.convert(spec, views.PodSpec)


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "10m", "32"]),
        "memory": st.sampled_from(["1Gi", "1", "20Mi"]),
        "nvidia.com/mlx5_0": st.sampled_from(["1", "2"]),
    },
)
CONTAINERS = st.builds(
    lambda requests, limits, same: {
        "image": "i",
        "resources": {"limits": limits} if same else {"requests": {**limits, **requests}, "limits": limits},
    },
    AMOUNTS,
    AMOUNTS,
    st.booleans(),
)
BEFORE = st.lists(
    st.builds(
        lambda container, always: container | ({"restartPolicy": "Always"} if always else {}), CONTAINERS, st.booleans()
    ),
    max_size=2,
)


@given(st.lists(CONTAINERS, min_size=1, max_size=3), BEFORE)
def test_the_preflight_changes_neither_quota_nor_quality_of_service(apps, before):
    apps[0]["resources"].setdefault("limits", {})["nvidia.com/gpu"] = "8"
    tree = pod(
        *[app | {"name": f"c{number}"} for number, app in enumerate(apps)],
        initContainers=[container | {"name": f"i{number}"} for number, container in enumerate(before)],
    )
    without, with_it = (admitted(tree, fabric(more))["spec"] for more in ("", ON))
    assert preflight({"spec": with_it})
    assert qos(with_it) == qos(without)
    # what quotas and schedulers count
    assert resources.compute_requests(read_spec(with_it)) == resources.compute_requests(read_spec(without))


def test_the_preflight_of_a_guaranteed_pod_has_small_limits_of_its_own():
    own = gpus(8)
    for part in own["resources"].values():
        part |= {"cpu": "32", "memory": "1Ti"}
    limits = preflight(admitted(pod(own), fabric(ON)))["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("100m", str(64 * 2**20))


def test_a_quantity_that_cannot_be_read_counts_as_none():
    own = gpus(8)
    own["resources"]["limits"]["memory"] = "many"
    assert preflight(admitted(pod(own), fabric(ON)))


@pytest.mark.parametrize(
    ("more", "own", "checked"),
    [
        ("", {}, False),
        ("", {"nvidia.com/mlx5_0": "1"}, True),
        ("    mounts: {devInfiniband: true}\n", {}, True),
        ("    security: {privileged: true}\n", {}, True),
        ("    nccl: {delivery: file}\n", {}, False),
    ],
)
def test_without_devices_the_preflight_checks_only_what_the_container_sees(more, own, checked):
    container = gpus(8)
    container["resources"]["limits"] |= own
    tree = admitted(pod(container, annotations={"railwright.io/skip": "devices"}), fabric(ON + more))
    assert bool(tree["spec"].get("initContainers")) == checked
    if not checked:
        assert "leaves out the devices" in skipped(tree)["preflight"]
