"""Number of devices, and the containers that request them (docs/interface.md 3.2)."""

import admitting
import pytest
from admitting import (
    admit_pod,
    build_facts,
    cpu,
    fabric,
    get_refusal,
    gpus,
    plan_pod,
    pod,
    read_limits,
    read_record,
)

NETWORKS = "k8s.v1.cni.cncf.io/networks"
ONE_POOL = """
    - {name: rail0, network: prod/vf, resource: x.y/vf, device: mlx5_0}
    - {name: rail1, network: prod/vf, resource: x.y/vf, device: mlx5_1}
"""
POOL = {("prod", "vf"): "x.y/vf", ("prod", "other"): "x.y/vf"}


def amounts(tree: dict, container: int = 0) -> dict:
    device_limits = {name: text for name, text in read_limits(tree, container).items() if name != "nvidia.com/gpu"}
    requests = tree["spec"]["containers"][container]["resources"]["requests"]
    assert {name: requests[name] for name in device_limits} == device_limits
    return device_limits


def test_rails_that_share_a_resource_are_requested_as_one_sum():
    assert amounts(admit_pod(pod(), fabric("    devicesPerRail: 2\n", rails=ONE_POOL), build_facts(networks=POOL))) == {
        "x.y/vf": "4"
    }


def test_the_resource_is_read_from_the_network_if_the_policy_names_none():
    policy = fabric(rails="[{name: rail0, network: prod/vf}]")
    assert amounts(admit_pod(pod(), policy, build_facts(networks=POOL))) == {"x.y/vf": "1"}


def test_devices_are_requested_for_the_users_own_attachments_too():
    tree = pod(annotations={NETWORKS: "other,vf"})
    after = admit_pod(tree, fabric(rails=ONE_POOL), build_facts(networks=POOL))
    assert after["metadata"]["annotations"][NETWORKS] == "other,vf,prod/vf"
    assert amounts(after) == {"x.y/vf": "3"}


def test_a_pod_without_rails_gets_no_devices_for_its_own_networks():
    tree = pod(cpu(), labels=admitting.LAUNCHER, annotations={NETWORKS: "other"})
    assert read_limits(admit_pod(tree, fabric(rails=ONE_POOL), build_facts(networks=POOL))) == {}


def test_shared_devices_are_requested_in_every_target_container_and_a_pool_in_one():
    two = pod(gpus(4, "a"), gpus(4, "b"))
    after = admit_pod(two, fabric())
    assert amounts(after, 0) == amounts(after, 1) == {"nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    policy, at = fabric(rails=ONE_POOL), build_facts(networks=POOL)
    assert "2 containers are selected (a, b); name one in annotation railwright.io/containers" in get_refusal(
        two, policy, at
    )
    two["metadata"]["annotations"] = {"railwright.io/containers": "b"}
    after = admit_pod(two, policy, at)
    assert (amounts(after, 0), amounts(after, 1)) == ({}, {"x.y/vf": "2"})


def test_a_request_for_too_few_devices_is_raised_and_never_lowered():
    for asked, becomes in {"1": "2", "2": "2", "5": "5", "2000m": "2000m", "1e0": "2"}.items():
        container = gpus(8)
        for part in ("requests", "limits"):
            container["resources"][part]["x.y/vf"] = asked
        assert amounts(admit_pod(pod(container), fabric(rails=ONE_POOL), build_facts(networks=POOL))) == {
            "x.y/vf": becomes
        }


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_missing_request_or_limit_is_completed_from_the_other(part):
    container = gpus(8)
    container["resources"][part]["nvidia.com/mlx5_0"] = "1"
    assert amounts(admit_pod(pod(container), fabric()))["nvidia.com/mlx5_0"] == "1"


@pytest.mark.parametrize("nothing", ["0", "0m", "0.0", 0])
def test_a_request_of_zero_in_any_spelling_leaves_out_the_rail(nothing):
    container = gpus(8)
    container["resources"]["limits"]["nvidia.com/mlx5_0"] = nothing
    tree = admit_pod(pod(container), fabric())
    assert read_limits(tree)["nvidia.com/mlx5_0"] == nothing
    assert "nvidia.com/mlx5_0" not in tree["spec"]["containers"][0]["resources"]["requests"]
    assert tree["metadata"]["annotations"][NETWORKS] == "prod/lan3"
    assert {"name": "NCCL_IB_HCA", "value": "=mlx5_1"} in tree["spec"]["containers"][0]["env"]
    assert read_record(tree)["rails"] == ["rail1"]


def test_a_proportional_number_of_rails_is_rounded_up_and_at_least_one():
    four = str([{"name": f"r{n}", "resource": f"x.y/r{n}"} for n in range(4)])
    policy = fabric("    railsPerPod: proportional\n    gpusPerNode: 8\n", rails=four)
    for accelerators, rails in ((8, 4), (4, 2), (3, 2), (1, 1), (0, 1), (16, 4)):
        container = gpus(accelerators) if accelerators else cpu()
        tree = pod(container, annotations={"railwright.io/containers": "c"})
        assert plan_pod(tree, policy).rails == tuple(f"r{n}" for n in range(rails)), accelerators


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
        (4, [EXCLUSIVE | FOUR, EIGHT, {"x.y/r0": 1} | EIGHT], "", {}, 4),  # larger nodes lack the rails
        (4, [EXCLUSIVE | FOUR, EXCLUSIVE | {"nvidia.com/mig-1g.10gb": 56}], "", {}, 4),  # other accelerators
        (1, [SHARED | EIGHT], "", {}, 4),
        (1, [EIGHT], "    gpusPerNode: 8\n", {}, 4),
        (1, None, "", {}, 4),
        (1, [EXCLUSIVE | EIGHT], "    railsPerPod: all\n", {}, 4),
        (1, [EXCLUSIVE | EIGHT], "", {"label": "f"}, 4),
        (1, [EXCLUSIVE | EIGHT], "", {"annotations": {"railwright.io/rails": "3"}}, 3),
    ],
)
def test_a_pod_opted_in_by_its_namespace_gets_only_its_share_of_exclusive_rails(gpus_of_pod, nodes, text, more, rails):
    top = "accelerators: [nvidia.com/gpu, nvidia.com/mig-1g.10gb]\n"
    policy = fabric(
        text, rails=str([{"name": f"r{number}", "resource": f"x.y/r{number}"} for number in range(4)]), top=top
    )
    known = admitting.build_facts(namespace_labels=LABEL, node_devices=nodes)
    tree = pod(gpus(gpus_of_pod), **{"label": None, **more})
    outcome = plan_pod(tree, policy, known)
    assert outcome.rails == tuple(f"r{number}" for number in range(rails))
    is_share = rails < 4 and "annotations" not in more
    skipped = read_record(admit_pod(tree, policy, known))["skipped"]
    assert [why["code"] for entry, why in skipped.items() if entry == "rails"] == ["RailsInProportion"] * is_share


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
def test_shares_of_an_accelerator_add_up_to_whole_accelerators(resource, amount, rails):
    four = str([{"name": f"r{n}", "resource": f"x.y/r{n}"} for n in range(4)])
    policy = fabric("    railsPerPod: proportional\n    gpusPerNode: 8\n", rails=four, top=SHARES)
    outcome = plan_pod(pod(cpu(resources={"limits": {resource: str(amount)}})), policy)
    assert len(outcome.rails) == rails


def test_init_containers_and_sidecars_get_no_devices_and_their_gpus_do_not_count():
    asked = {"requests": {"x.y/vf": "1"}, "limits": {"x.y/vf": "1"}}
    inits = [cpu("init", resources=asked), cpu("sidecar", resources=asked, restartPolicy="Always"), gpus(1, "gpu")]
    after = admit_pod(
        pod(cpu("mesh"), gpus(8), initContainers=inits), fabric(rails=ONE_POOL), build_facts(networks=POOL)
    )
    assert after["spec"]["initContainers"] == inits
    assert (read_limits(after, 0), amounts(after, 1)) == ({}, {"x.y/vf": "2"})


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
def test_devices_are_requested_for_the_default_network_too(theirs, policys, vfs):
    more = f"    annotations: {{v1.multus-cni.io/default-network: {policys}}}\n" if policys else ""
    annotations = {"v1.multus-cni.io/default-network": theirs} if theirs else {}
    after = admit_pod(pod(annotations=annotations), fabric(more, rails=ONE_POOL), build_facts(networks=POOL))
    assert after["metadata"]["annotations"]["v1.multus-cni.io/default-network"] == (theirs or policys)
    assert amounts(after) == {"x.y/vf": vfs}


# --- a network of the user's own beside several containers that compute --------------------------------------


def test_a_rail_requests_both_resources_if_policy_and_network_name_different_ones():
    """Multus would find no device for the attachment, and the pod would never start."""
    policy = fabric(rails="[{name: rail0, network: prod/vf, resource: x.y/shared}]")
    after = admit_pod(pod(), policy, build_facts(networks={("prod", "vf"): "x.y/vf"}))
    assert {name: read_limits(after)[name] for name in ("x.y/shared", "x.y/vf")} == {"x.y/shared": "1", "x.y/vf": "1"}
