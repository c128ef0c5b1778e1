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
        tree = pod(container, annotations={"railwright.io/containers": "c"})
        assert planned(tree, policy).rails == tuple(f"r{n}" for n in range(rails)), accelerators


def test_accelerators_of_the_authors_own_claim_make_no_rails_proportional():
    claimed = pod(cpu(resources={"claims": [{"name": "g"}]}), resourceClaims=[{"name": "g", "resourceClaimName": "g"}])
    proportional = fabric("    gpusPerNode: 8\n    railsPerPod: proportional\n")
    assert record(admitted(claimed, proportional))["rails"] == ["rail0", "rail1"]


EXCLUSIVE = {f"x.y/r{number}": 1 for number in range(4)}
SHARED = dict.fromkeys(EXCLUSIVE, 8)
FOUR, EIGHT = {"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 8}
LABEL = {"railwright.io/fabric": "f"}


@pytest.mark.parametrize(
    ("gpus_of_pod", "nodes", "text", "more", "rails"),
    [
        (1, [EXCLUSIVE | EIGHT, EXCLUSIVE | FOUR], "", {}, 1),
        (2, [EXCLUSIVE | EIGHT], "", {}, 1),
        (3, [EXCLUSIVE | EIGHT], "    gpusPerNode: 4\n", {}, 3),
        (8, [EXCLUSIVE | EIGHT], "", {}, 4),
        (4, [EXCLUSIVE | FOUR, EIGHT, {"x.y/r0": 1} | EIGHT], "", {}, 4),
        (4, [EXCLUSIVE | FOUR, EXCLUSIVE | {"nvidia.com/mig-1g.10gb": 56}], "", {}, 4),
        (1, [SHARED | EIGHT], "", {}, 4),
        (1, [EIGHT], "    gpusPerNode: 8\n", {}, 4),
        (1, None, "", {}, 4),
        (1, [EXCLUSIVE | EIGHT], "    railsPerPod: all\n", {}, 4),
        (1, [EXCLUSIVE | EIGHT], "", {"label": "f"}, 4),
        (1, [EXCLUSIVE | EIGHT], "", {"annotations": {"railwright.io/rails": "3"}}, 3),
    ],
    ids=[
        "one GPU",
        "two",
        "of four",
        "all GPUs",
        "larger nodes without the rails",
        "nodes with another accelerator",
        "shared rails",
        "no node with the rails",
        "unknown nodes",
        "by policy",
        "own label",
        "annotation",
    ],
)
def test_a_pod_that_its_namespace_opts_in_does_not_take_all_exclusive_rails(gpus_of_pod, nodes, text, more, rails):
    top = "accelerators: [nvidia.com/gpu, nvidia.com/mig-1g.10gb]\n"
    policy = fabric(
        text, rails=str([{"name": f"r{number}", "resource": f"x.y/r{number}"} for number in range(4)]), top=top
    )
    known = admitting.known(namespace_labels=LABEL, node_devices=nodes)
    tree = pod(gpus(gpus_of_pod), **{"label": None, **more})
    outcome = planned(tree, policy, known)
    assert outcome.rails == tuple(f"r{number}" for number in range(rails))
    is_share = rails < 4 and "annotations" not in more
    skipped = record(admitted(tree, policy, known))["skipped"]
    assert [why["code"] for entry, why in skipped.items() if entry == "rails"] == ["RailsInProportion"] * is_share


def test_a_pod_of_two_kinds_of_accelerators_is_compared_with_a_node_that_has_both():
    slices = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb")
    policy = fabric(rails="[{name: r, resource: d/r}]", top=f"accelerators: [{', '.join(slices)}]\n")
    at = known(node_devices=({**dict.fromkeys(slices, 4), "d/r": 8},))
    for amount, is_too_many in ((3, False), (5, True)):
        wanted = pod(cpu(resources={"limits": dict.fromkeys(slices, str(amount))}))
        codes = {warning.code for warning in planned(wanted, policy, at).warnings}
        assert ("GpusExceedNode" in codes) is is_too_many, codes


SHARES = (
    "accelerators: [nvidia.com/gpu, nvidia.com/mig-1g.10gb, koordinator.sh/gpu]\n"
    "acceleratorUnits: {koordinator.sh/gpu: 100, nvidia.com/mig-1g.10gb: 7}\n"
)


@pytest.mark.parametrize(
    ("resource", "amount", "rails"),
    [
        ("koordinator.sh/gpu", 200, 1),
        ("koordinator.sh/gpu", 201, 2),
        ("koordinator.sh/gpu", 50, 1),
        ("nvidia.com/mig-1g.10gb", 7, 1),
        ("nvidia.com/mig-1g.10gb", 21, 2),
        ("nvidia.com/gpu", 8, 4),
    ],
)
def test_units_that_are_shares_of_an_accelerator_count_as_the_accelerators_that_they_make(resource, amount, rails):
    four = str([{"name": f"r{n}", "resource": f"x.y/r{n}"} for n in range(4)])
    policy = fabric("    railsPerPod: proportional\n    gpusPerNode: 8\n", rails=four, top=SHARES)
    outcome = planned(pod(cpu(resources={"limits": {resource: str(amount)}})), policy)
    assert len(outcome.rails) == rails
    assert "GpusExceedNode" not in {warning.code for warning in outcome.warnings}


def test_more_accelerators_than_any_node_has_are_a_warning_without_a_key_of_the_policy():
    nodes = [{"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 8}]
    for count, offered, warned in ((16, nodes, True), (8, nodes, False), (16, [{}], False), (16, None, False)):
        known = admitting.known(node_devices=offered)
        lines = [line for line in messages(planned(pod(gpus(count)), fabric(), known)) if "requests 16" in line]
        assert bool(lines) is warned, (count, offered)
        if warned:
            assert lines[0].startswith("the pod requests 16 nvidia.com/gpu, and no node has more than 8: it stays")


def test_more_units_than_accelerators_name_the_key_for_shares():
    policy = fabric("    gpusPerNode: 8\n", top="accelerators: [nvidia.com/gpu, koordinator.sh/gpu]\n")
    (message,) = messages(planned(pod(cpu(resources={"limits": {"koordinator.sh/gpu": "200"}})), policy))
    assert message.startswith("the pod requests 200 koordinator.sh/gpu, and a node of fabric f has 8")
    assert message.endswith("or acceleratorUnits if a unit is a share of an accelerator")


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
