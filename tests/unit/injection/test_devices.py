"""Number of devices, and the containers that request them (docs/interface.md 3.2)."""

import admitting
import pytest
from admitting import LAUNCHER, admitted, cpu, fabric, gpus, known, limits, messages, planned, pod, record, refusal

NETWORKS = "k8s.v1.cni.cncf.io/networks"
ONE_POOL = """
    - {name: rail0, network: prod/vf, resource: x.y/vf, device: mlx5_0}
    - {name: rail1, network: prod/vf, resource: x.y/vf, device: mlx5_1}
"""
POOL = {("prod", "vf"): "x.y/vf", ("prod", "other"): "x.y/vf"}


def amounts(tree: dict, container: int = 0) -> dict:
    device_limits = {name: text for name, text in limits(tree, container).items() if name != "nvidia.com/gpu"}
    requests = tree["spec"]["containers"][container]["resources"]["requests"]
    assert {name: requests[name] for name in device_limits} == device_limits
    return device_limits


def test_rails_that_share_a_resource_are_summed():
    assert amounts(admitted(pod(), fabric("    devicesPerRail: 2\n", rails=ONE_POOL), known(networks=POOL))) == {
        "x.y/vf": "4"
    }


def test_the_resource_comes_from_the_network_where_the_policy_names_none():
    policy = fabric(rails="[{name: rail0, network: prod/vf}]")
    assert amounts(admitted(pod(), policy, known(networks=POOL))) == {"x.y/vf": "1"}


def test_the_users_own_attachments_to_a_pool_are_covered_too():
    tree = pod(annotations={NETWORKS: "other,vf"})
    after = admitted(tree, fabric(rails=ONE_POOL), known(networks=POOL))
    assert after["metadata"]["annotations"][NETWORKS] == "other,vf,prod/vf"
    assert amounts(after) == {"x.y/vf": "3"}


def test_shared_devices_are_requested_in_each_chosen_container_and_pool_devices_only_in_one():
    two = pod(gpus(4, "a"), gpus(4, "b"))
    after = admitted(two, fabric())
    assert amounts(after, 0) == amounts(after, 1) == {"nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    policy, at = fabric(rails=ONE_POOL), known(networks=POOL)
    assert "2 containers are selected (a, b); name one in annotation railwright.io/containers" in refusal(
        two, policy, at
    )
    two["metadata"]["annotations"] = {"railwright.io/containers": "b"}
    after = admitted(two, policy, at)
    assert (amounts(after, 0), amounts(after, 1)) == ({}, {"x.y/vf": "2"})


def test_a_partial_request_is_completed_and_never_lowered():
    for asked, becomes in {"1": "2", "2": "2", "5": "5", "2000m": "2000m", "1e0": "2"}.items():
        container = gpus(8)
        for part in ("requests", "limits"):
            container["resources"][part]["x.y/vf"] = asked
        assert amounts(admitted(pod(container), fabric(rails=ONE_POOL), known(networks=POOL))) == {"x.y/vf": becomes}


def test_requests_of_other_app_containers_count():
    other = cpu("other", resources={"requests": {"x.y/vf": "1"}, "limits": {"x.y/vf": "1"}})
    after = admitted(pod(other, gpus(8)), fabric(rails=ONE_POOL), known(networks=POOL))
    assert amounts(after, 1) == {"x.y/vf": "1"}


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_request_without_limit_or_the_reverse_gets_its_other_half(part):
    container = gpus(8)
    container["resources"][part]["nvidia.com/mlx5_0"] = "1"
    assert amounts(admitted(pod(container), fabric()))["nvidia.com/mlx5_0"] == "1"


@pytest.mark.parametrize("nothing", ["0", "0m", "0.0", 0])
def test_zero_in_any_spelling_opts_the_resource_and_its_rail_out(nothing):
    container = gpus(8)
    container["resources"]["limits"]["nvidia.com/mlx5_0"] = nothing
    tree = admitted(pod(container), fabric())
    assert limits(tree)["nvidia.com/mlx5_0"] == nothing
    assert "nvidia.com/mlx5_0" not in tree["spec"]["containers"][0]["resources"]["requests"]
    assert tree["metadata"]["annotations"][NETWORKS] == "prod/lan3"
    assert {"name": "NCCL_IB_HCA", "value": "=mlx5_1"} in tree["spec"]["containers"][0]["env"]
    assert record(tree)["rails"] == ["rail1"]


def test_proportional_rails_are_the_first_ones_rounded_up_and_at_least_one():
    four = str([{"name": f"r{n}", "resource": f"x.y/r{n}"} for n in range(4)])
    policy = fabric("    railsPerPod: proportional\n    gpusPerNode: 8\n", rails=four)
    for accelerators, rails in ((8, 4), (4, 2), (3, 2), (1, 1), (0, 1), (16, 4)):
        container = gpus(accelerators) if accelerators else cpu()
        assert planned(pod(container), policy).rails == tuple(f"r{n}" for n in range(rails)), accelerators


def test_a_zero_in_one_chosen_container_stays_where_another_takes_part():
    none, some = ({"nvidia.com/gpu": "1", "nvidia.com/mlx5_0": amount} for amount in "01")
    tree = pod(
        {"name": "a", "resources": {"requests": none, "limits": none}},
        {"name": "b", "resources": {"requests": some, "limits": some}},
    )
    after = admitted(tree, fabric())
    assert [limits(after, index)["nvidia.com/mlx5_0"] for index in (0, 1)] == ["0", "1"]
    assert [limits(after, index)["nvidia.com/mlx5_1"] for index in (0, 1)] == ["1", "1"]


def test_init_containers_and_sidecars_are_not_counted_and_get_no_devices():
    asked = {"requests": {"x.y/vf": "1"}, "limits": {"x.y/vf": "1"}}
    inits = [cpu("init", resources=asked), cpu("sidecar", resources=asked, restartPolicy="Always"), gpus(1, "gpu")]
    after = admitted(pod(cpu("mesh"), gpus(8), initContainers=inits), fabric(rails=ONE_POOL), known(networks=POOL))
    assert after["spec"]["initContainers"] == inits
    assert (limits(after, 0), amounts(after, 1)) == ({}, {"x.y/vf": "2"})


def test_a_pod_gets_the_devices_of_its_own_fabric_and_keeps_what_it_asks_of_another():
    policy = admitting.policy(
        "apiVersion: railwright.io/v1alpha1\nfabrics:\n"
        "  f: {transport: roce, rails: [{name: a, resource: x.y/shared}, {name: b, resource: x.y/shared}]}\n"
        "  g: {transport: infiniband, rails: [{name: a, resource: x.y/shared}, {name: c, resource: x.y/hca}]}\n"
    )
    assert amounts(admitted(pod(label="f"), policy)) == {"x.y/shared": "2"}
    assert amounts(admitted(pod(label="g"), policy)) == {"x.y/shared": "1", "x.y/hca": "1"}
    container = gpus(8)
    for part in ("requests", "limits"):
        container["resources"][part]["x.y/hca"] = "3"
    assert amounts(admitted(pod(container, label="f"), policy)) == {"x.y/shared": "2", "x.y/hca": "3"}


def test_a_gang_of_equal_pods_has_the_same_rails_whichever_container_holds_its_accelerators():
    four = str([{"name": f"r{n}", "resource": f"x.y/r{n}"} for n in range(4)])
    policy = fabric("    railsPerPod: proportional\n    gpusPerNode: 8\n", rails=four)
    gang = [pod(gpus(4)), pod(cpu("a"), gpus(4, "b")), pod(gpus(2, "a"), gpus(2, "b"))]
    assert {planned(member, policy).rails for member in gang} == {("r0", "r1")}


def test_a_rail_whose_devices_come_from_the_host_needs_no_resource():
    on_the_host = fabric(
        "    mounts: {devInfiniband: true}\n", rails="[{name: rail0, network: prod/vf, device: mlx5_0}]"
    )
    assert messages(planned(pod(), on_the_host, known(networks={("prod", "vf"): None}))) == ()


@pytest.mark.parametrize(
    ("theirs", "policys", "vfs"),
    [
        ("vf", None, "2"),
        ("kube-system/vf", None, "2"),
        ("prod/other", None, "3"),
        (None, "prod/other", "3"),
        ("vf", "prod/other", "2"),
        ("[", None, "2"),
    ],
)
def test_the_default_network_stays_and_its_pool_covers_it(theirs, policys, vfs):
    more = f"    annotations: {{v1.multus-cni.io/default-network: {policys}}}\n" if policys else ""
    annotations = {"v1.multus-cni.io/default-network": theirs} if theirs else {}
    after = admitted(pod(annotations=annotations), fabric(more, rails=ONE_POOL), known(networks=POOL))
    assert after["metadata"]["annotations"]["v1.multus-cni.io/default-network"] == (theirs or policys)
    assert amounts(after) == {"x.y/vf": vfs}


# --- a network of the user's own beside several containers that compute --------------------------------------

STORAGE = {("prod", "storage"): "x.y/storage", ("prod", "lan2"): None, ("prod", "lan3"): None}
OF_STORAGE = {"k8s.v1.cni.cncf.io/networks": "storage"}


def test_a_pool_that_a_sidecar_requests_for_the_users_network_needs_no_other_request():
    sidecar = cpu("nfs", resources={"limits": {"x.y/storage": "1"}, "requests": {"x.y/storage": "1"}})
    tree = pod(gpus(4, "a"), gpus(4, "b"), sidecar, annotations=OF_STORAGE)
    after = admitted(tree, fabric(), known(networks=STORAGE))
    assert [limits(after, index).get("x.y/storage") for index in (0, 1, 2)] == [None, None, "1"]
    assert [limits(after, index).get("nvidia.com/mlx5_0") for index in (0, 1, 2)] == ["1", "1", None]
    assert planned(after, fabric(), known(networks=STORAGE)).changes == ()


@pytest.mark.parametrize("held", ["1", "2"])
def test_a_pool_of_the_rails_needs_one_container_whoever_requested_it(held):
    pool = {("prod", "lan2"): "x.y/vf", ("prod", "lan3"): "x.y/vf"}
    policy = fabric(rails="[{name: rail0, network: prod/lan2}, {name: rail1, network: prod/lan3}]")
    tree = pod(gpus(4, "a"), gpus(4, "b"), cpu("nfs", resources={"limits": {"x.y/vf": held}}))
    assert "name one in annotation railwright.io/containers" in refusal(tree, policy, known(networks=pool))


def test_with_skip_networks_an_attachment_to_a_missing_network_is_a_warning():
    tree = pod(annotations={NETWORKS: "lan2", "railwright.io/skip": "networks"})
    warnings = messages(planned(tree, fabric(), known(networks={})))
    assert any("NetworkAttachmentDefinition prod/lan2 of entry 1 does not exist" in warning for warning in warnings)


def test_a_rail_whose_network_draws_on_another_pool_than_the_policy_names_gets_both():
    """Multus would find no device for the attachment, and the pod would never start."""
    policy = fabric(rails="[{name: rail0, network: prod/vf, resource: x.y/shared}]")
    after = admitted(pod(), policy, known(networks={("prod", "vf"): "x.y/vf"}))
    assert {name: limits(after)[name] for name in ("x.y/shared", "x.y/vf")} == {"x.y/shared": "1", "x.y/vf": "1"}


# --- warnings to the author of a pod about devices ------------------------------------------------------------

MANY = "".join(f"\n    - {{name: rail{k}, network: prod/lan{k}}}" for k in range(16))


def test_a_shortcoming_of_the_policy_is_reported_once_however_many_rails_have_it():
    networks = {("prod", f"lan{k}"): None for k in range(16)}
    (warning,) = messages(planned(pod(), fabric(rails=MANY), known(networks=networks)))
    assert "for rail0, rail1, " in warning
    assert " more, because neither the policy nor a network names a resource" in warning
    some = MANY.replace("{name: rail0,", "{name: rail0, resource: rdma/ib,")
    (warning,) = messages(planned(pod(), fabric(rails=some), known(networks=networks)))
    assert warning.startswith("no device is requested for rail1, rail2, ")
    other = dict.fromkeys(networks, "x.y/vf")
    contradicting = fabric(rails=MANY.replace("{name", "{resource: rdma/ib, name"))
    warnings = messages(planned(pod(), contradicting, known(networks=other)))
    (warning,) = [warning for warning in warnings if "network uses" in warning]
    assert warning.startswith("rail0: the policy requests rdma/ib and the network uses x.y/vf")


def test_devices_that_are_left_from_an_older_policy_are_reported_where_no_node_offers_them():
    container = gpus(8)
    for part in ("requests", "limits"):
        container["resources"][part] |= {"nvidia.com/old_0": "1", "nvidia.com/none": "0", "memory": "1Gi"}
        container["resources"][part]["deviceclass.resource.kubernetes.io/nic"] = "1"
    offered = frozenset({"nvidia.com/mlx5_0", "nvidia.com/mlx5_1"})
    (warning,) = messages(planned(pod(container), fabric(), known(offered=offered)))
    assert warning.startswith("container c requests nvidia.com/old_0, which no node offers: the pod stays pending")
    assert messages(planned(pod(container), fabric(), known(offered=offered | {"nvidia.com/old_0"}))) == ()
    assert messages(planned(pod(container), fabric(), known())) == (), "nothing is known of nodes"


@pytest.mark.parametrize(("asked", "is_reported"), [(None, True), ("1", True), ("2", False), ("0", False)])
def test_skipped_devices_of_a_pool_that_networks_draw_on_are_reported_unless_the_pod_requests_them(asked, is_reported):
    container = gpus(8)
    if asked is not None:
        container["resources"]["limits"]["x.y/vf"] = asked
    tree = pod(container, annotations={"railwright.io/skip": "devices"})
    warnings = messages(planned(tree, fabric(rails=ONE_POOL), known(networks=POOL)))
    assert (
        any("leaves out devices, and the pod requests too few of x.y/vf" in warning for warning in warnings)
        == is_reported
    )
    tree["metadata"]["annotations"]["railwright.io/skip"] = "devices,networks"
    warnings = messages(planned(tree, fabric(rails=ONE_POOL), known(networks=POOL)))
    assert not any("leaves out devices" in warning for warning in warnings)


@pytest.mark.parametrize(("own", "is_reported"), [({}, True), ({"x.y/vf": "1"}, True), ({"x.y/vf": "2"}, False)])
def test_a_pod_without_rails_gets_a_warning_about_devices_that_its_networks_lack(own, is_reported):
    """Nothing is added to it, and Multus fails to start the sandbox."""
    annotations = {NETWORKS: "prod/vf,prod/other"}
    tree = pod(cpu(resources={"limits": own}), labels=LAUNCHER, annotations=annotations)
    outcome = planned(tree, fabric(rails=ONE_POOL), known(networks=POOL))
    assert not outcome.rails
    assert any("use x.y/vf, and the pod requests too few" in message for message in messages(outcome)) == is_reported


@pytest.mark.parametrize(("container", "labels"), [(gpus(8), {}), (cpu(), LAUNCHER)], ids=["worker", "launcher"])
def test_a_left_over_device_of_an_init_container_and_of_a_pod_without_rails_is_named(container, labels):
    left_over = {"name": "side", "image": "i", "resources": {"limits": {"x.y/old": "1"}}}
    tree = pod(container, labels=labels, initContainers=[left_over])
    offered = frozenset({"nvidia.com/mlx5_0", "nvidia.com/mlx5_1"})
    (warning,) = messages(planned(tree, fabric(), known(offered=offered)))
    assert warning.startswith("container side requests x.y/old, which no node offers")
