"""A pod whose rails come as claims: it names templates, its containers use them, and its GPUs are no requests."""

import json
import re

import msgspec
import pytest
from admitting import (
    admitted,
    cpu,
    fabric,
    gpus,
    known,
    limits,
    list_claim_templates,
    messages,
    planned,
    pod,
    record,
    skipped,
    view,
)

from railwright.fabric.injection import claim_requests, context, facts, pod_changes
from webhook import response_cache

DEVICES = ("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27")
RAILS = "".join(f"\n    - {{name: rail{rail}, device: {device}}}" for rail, device in enumerate(DEVICES)) + "\n"
GPUS = "accelerators: {deviceClass: gpu.nvidia.com}"
JOB = {"batch.kubernetes.io/job-name": "train"}
ANNOTATED, CHOSEN = {"railwright.io/rails": "2"}, {"railwright.io/rails": "rail2,rail3"}


def claims_fabric(more="", *, claims="", rails=RAILS, per_pod="proportional"):
    section = f"    gpusPerNode: 8\n    railsPerPod: {per_pod}\n    claims: {{deviceClass: dranet{claims}}}\n"
    return fabric(section + more, rails=rails, transport="efa")


def by_gpus(**more):
    return claims_fabric(claims=f", {GPUS}", **more)


def find_plan(tree, by, **more):
    at = facts.ClusterFacts(namespace="prod", **more)
    ctx = context.build(view(tree), by, at, "f", context.UserOptions())
    return claim_requests.plan_claims(view(tree), ctx), by.compile_once(claim_requests.compile_fabrics)["f"]


def test_the_claim_takes_the_place_of_the_gpus():
    result = admitted(pod(gpus(4)), by_gpus())
    (template,) = list_claim_templates(result)
    assert re.fullmatch(r"railwright-f-4x2-[0-9a-f]{10}", template)
    assert result["spec"]["containers"][0]["resources"] == {
        "limits": {"railwright.io/rails": "0"},
        "requests": {"railwright.io/rails": "0"},
        "claims": [{"name": "railwright"}],
    }
    assert "claims" in record(result)["added"]


def test_gpus_of_a_device_plugin_stay_requests():
    result = admitted(pod(gpus(8)), claims_fabric(claims=", pairBy: none"))
    assert limits(result) == {"nvidia.com/gpu": "8", "railwright.io/rails": "0"}
    assert list_claim_templates(result)[0].startswith("railwright-f-0x4-")


def test_a_claim_of_the_author_with_a_name_that_is_not_needed_stays():
    entry = {"name": "railwright-2", "resourceClaimName": "imex"}
    assert admitted(pod(gpus(4), resourceClaims=[entry]), by_gpus())["spec"]["resourceClaims"][0] == entry


def test_the_name_depends_on_what_is_in_the_template():
    by = by_gpus()
    names = [
        *list_claim_templates(admitted(pod(gpus(8)), by)),
        *list_claim_templates(admitted(pod(gpus(4)), by)),
        *list_claim_templates(admitted(pod(gpus(8), annotations={"railwright.io/rails": "rail0,rail1"}), by)),
        *list_claim_templates(admitted(pod(gpus(8), annotations={"railwright.io/rails": "rail1,rail2"}), by)),
        *list_claim_templates(admitted(pod(gpus(8)), claims_fabric(claims=f", {GPUS}, parameters: {{mtu: 9000}}"))),
    ]
    assert len(set(names)) == len(names)
    assert list_claim_templates(admitted(pod(gpus(8)), by)) == names[:1]


def test_a_single_pod_may_get_any_rails():
    plan, claimed = find_plan(pod(gpus(2)), by_gpus())
    assert plan.choice is claim_requests.Choice.SCHEDULER
    (devices,) = claim_requests.build_specs(claimed, plan, ())
    nic = devices["requests"][-1]
    assert nic["name"] == "nic0"
    assert all(device in nic["exactly"]["selectors"][0]["cel"]["expression"] for device in DEVICES)
    assert devices["constraints"][0]["requests"] == ["gpu0", "gpu1", "nic0"]


def test_the_expression_for_any_rail_joins_expressions_that_end_with_comments():
    tested = 'has(device.attributes["dra.net"].{0}) && device.attributes["dra.net"].{0} == {1} // rail {1}'
    rails = [
        f"{{name: rail{rail}, device: m{rail}, claim: {{expression: '{tested.format('n', rail)}'}}}}" for rail in (0, 1)
    ]
    plan, claimed = find_plan(pod(gpus(4)), by_gpus(rails=f"[{', '.join(rails)}]"))
    (devices,) = claim_requests.build_specs(claimed, plan, ())
    (selector,) = devices["requests"][-1]["exactly"]["selectors"]
    first, second = (tested.format("n", rail) for rail in (0, 1))
    assert selector["cel"]["expression"] == f"({first}\n) || ({second}\n)"


def test_the_pods_of_a_gang_name_one_template_and_another_gang_another():
    by = by_gpus()
    first, second, other = (
        list_claim_templates(admitted(pod(gpus(4), labels=labels), by))
        for labels in (
            {"batch.kubernetes.io/job-name": "a", "batch.kubernetes.io/job-completion-index": "0"},
            {"batch.kubernetes.io/job-name": "a", "batch.kubernetes.io/job-completion-index": "1"},
            {"batch.kubernetes.io/job-name": "b", "batch.kubernetes.io/job-completion-index": "0"},
        )
    )
    assert first == second
    assert first != other


def test_the_template_of_a_gang_has_the_rails_that_were_chosen():
    plan, claimed = find_plan(pod(gpus(4), labels=JOB), by_gpus())
    assert plan.choice is claim_requests.Choice.GANG
    (devices,) = claim_requests.build_specs(claimed, plan, (2, 3))
    assert [request["name"] for request in devices["requests"]] == ["gpu0", "gpu1", "rail2", "gpu2", "gpu3", "rail3"]


@pytest.mark.parametrize(
    ("tree", "policy", "choice"),
    [
        (pod(gpus(8), labels=JOB), by_gpus(), claim_requests.Choice.POD),  # all rails
        (pod(gpus(4), labels=JOB, annotations=CHOSEN), by_gpus(), claim_requests.Choice.POD),
        (pod(gpus(8), labels=JOB, annotations=ANNOTATED), by_gpus(per_pod="all"), claim_requests.Choice.GANG),
        (pod(gpus(4), labels=JOB), claims_fabric(claims=f", {GPUS}, gangRails: any"), claim_requests.Choice.SCHEDULER),
    ],
)
def test_certain_rails_are_named_and_a_number_of_rails_is_chosen_for_the_gang(tree, policy, choice):
    assert find_plan(tree, policy)[0].choice is choice


def test_copies_of_a_server_are_no_gang():
    tree = pod(gpus(2))
    owner = {"kind": "ReplicaSet", "name": "s", "uid": "u", "controller": True, "apiVersion": "apps/v1"}
    tree["metadata"]["ownerReferences"] = [owner]
    assert find_plan(tree, by_gpus())[0].choice is claim_requests.Choice.SCHEDULER
    tree["metadata"]["ownerReferences"] = [owner | {"kind": "StatefulSet"}]
    assert find_plan(tree, by_gpus())[0].choice is claim_requests.Choice.GANG


def test_pods_of_two_gangs_do_not_share_a_cached_response():
    tree, cache, by = pod(gpus(4)), response_cache.ResponseCache(), by_gpus()
    keys = set()
    for uid in ("a", "b"):
        owner = {"kind": "StatefulSet", "name": "s", "uid": uid, "controller": True, "apiVersion": "apps/v1"}
        tree["metadata"]["ownerReferences"] = [owner]
        entry = cache.build_entry(view(tree), 1, by, known(version=1))
        assert entry is not None
        keys.add(entry.key)
    assert len(keys) == 2


def test_gpus_of_several_containers_stay_requests_with_a_warning():
    tree = pod(gpus(4, "a"), gpus(4, "b"))
    result, outcome = admitted(tree, by_gpus()), planned(tree, by_gpus())
    assert limits(result, 0)["nvidia.com/gpu"] == limits(result, 1)["nvidia.com/gpu"] == "4"
    assert [container["resources"]["claims"] for container in result["spec"]["containers"]] == [
        [{"name": "railwright"}],
        [{"name": "railwright"}],
    ]
    assert "nothing pairs them with the NICs of fabric f" in messages(outcome)[0]


def test_a_claim_that_the_author_wrote_is_kept():
    tree = pod(
        gpus(4) | {"resources": {"claims": [{"name": "mine"}], "limits": {"nvidia.com/gpu": "4"}}},
        resourceClaims=[{"name": "mine", "resourceClaimTemplateName": "pairs"}],
    )
    at = known(claim_templates={("prod", "pairs"): frozenset({"dranet"})})
    result = admitted(tree, by_gpus(), at)
    assert list_claim_templates(result) == ["pairs"]
    assert limits(result) == {"nvidia.com/gpu": "4", "railwright.io/rails": "0"}
    assert "mine" in skipped(result)["claims"]
    channel = known(claim_templates={("prod", "pairs"): frozenset({"compute-domain.nvidia.com"})})
    assert (
        len(list_claim_templates(admitted(tree, by_gpus(), channel))) == 2
    )  # a claim for something else stays beside it


def test_skipping_devices_leaves_the_claims_out():
    result = admitted(pod(gpus(4), annotations={"railwright.io/skip": "devices"}), by_gpus())
    assert "resourceClaims" not in result["spec"]
    assert limits(result) == {"nvidia.com/gpu": "4"}


def test_two_claims_become_one_when_the_policy_needs_fewer():
    rails = "".join(f"\n    - {{name: rail{rail}, device: efa{rail}}}" for rail in range(32)) + "\n"
    large = admitted(pod(gpus(8)), by_gpus(rails=rails))
    first, second = list_claim_templates(large)
    assert second == f"{first}-2"
    assert large["spec"]["containers"][0]["resources"]["claims"] == [{"name": "railwright"}, {"name": "railwright-2"}]
    del large["metadata"]["annotations"]
    small = admitted(large, by_gpus())
    assert list_claim_templates(small)[0].startswith("railwright-f-8x4-")
    assert small["spec"]["containers"][0]["resources"]["claims"] == [{"name": "railwright"}]


def test_a_namespace_opts_in_the_pods_of_an_injected_template():
    by = by_gpus()
    injected = admitted(pod(gpus(4)), by)
    del injected["metadata"]["labels"], injected["metadata"]["annotations"]
    again = admitted(injected, by, known(namespace_labels={"railwright.io/fabric": "f"}))
    assert list_claim_templates(again) == list_claim_templates(injected)
    assert json.loads(again["metadata"]["annotations"]["railwright.io/injection"])["rails"] == ["rail0", "rail1"]
    assert msgspec.convert(again, type(view(again))) == view(again)


MULTUS = "".join(
    f"\n    - {{name: rail{rail}, network: prod/lan{rail + 2}, claim: {{value: x.y/r{rail}}}}}" for rail in range(2)
)


@pytest.mark.parametrize(("driver", "has_networks"), [("sriov", False), ("sriov-multus", True)])
def test_only_multus_attaches_networks_of_claimed_rails(driver, has_networks):
    result = admitted(pod(gpus(8)), claims_fabric(claims=f", driver: {driver}, {GPUS}", rails=MULTUS + "\n"))
    assert ("k8s.v1.cni.cncf.io/networks" in result["metadata"]["annotations"]) == has_networks


POOLS = {("prod", f"lan{rail + 2}"): f"x.y/r{rail}" for rail in range(2)} | {("prod", "storage"): "x.y/storage"}


@pytest.mark.parametrize("driver", ["sriov", "sriov-multus"])
def test_the_resource_that_a_claimed_rails_network_names_is_not_requested_beside_the_claim(driver):
    policy = claims_fabric(claims=f", driver: {driver}", rails=MULTUS + "\n", per_pod="all")
    at = known(networks=POOLS, offered=frozenset({"nvidia.com/gpu"}))
    after = admitted(pod(gpus(8)), policy, at)
    assert limits(after) == {"nvidia.com/gpu": "8", "railwright.io/rails": "0"}
    assert messages(planned(pod(gpus(8)), policy, at)) == ()
    own = {"k8s.v1.cni.cncf.io/networks": "prod/lan2,prod/storage"}
    assert limits(admitted(pod(gpus(8), annotations=own), policy, at)) == {
        "nvidia.com/gpu": "8",
        "railwright.io/rails": "0",
        "x.y/storage": "1",  # of the author's own network, by a device plugin
    }


@pytest.mark.parametrize("count", [1, 4])
def test_an_init_container_uses_the_gpus_of_the_claim(count):
    by = by_gpus(more="    security: {capabilities: [IPC_LOCK]}\n")
    tree = pod(gpus(4), initContainers=[cpu("fetch"), gpus(count, "diagnose")])
    after = admitted(tree, by)
    fetch, diagnose = after["spec"]["initContainers"]
    assert "resources" not in fetch
    assert diagnose["resources"] == {"limits": {}, "requests": {}, "claims": [{"name": "railwright"}]}
    assert list_claim_templates(after)[0].startswith("railwright-f-4x2-")
    assert messages(planned(tree, by)) == ()
    assert planned(after, by).changes == ()


@pytest.mark.parametrize("init", [gpus(8, "diagnose"), gpus(1, "monitor", restartPolicy="Always")])
def test_gpus_of_an_init_container_that_are_not_those_of_the_app_leave_all_gpus_requests(init):
    after = admitted(pod(gpus(4), initContainers=[init]), by_gpus())
    assert after["spec"]["initContainers"] == [init]
    assert limits(after)["nvidia.com/gpu"] == "4"
    assert list_claim_templates(after)[0].startswith("railwright-f-0x")


def test_gpus_of_an_init_container_return_with_those_of_the_app():
    once = admitted(pod(gpus(4), initContainers=[gpus(4, "diagnose")]), by_gpus())
    again = admitted(once, fabric(rails="[{name: rail0, resource: x.y/r}]"))
    assert "resourceClaims" not in again["spec"] or again["spec"]["resourceClaims"] == []
    for container in (*again["spec"]["containers"], *again["spec"]["initContainers"]):
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
        assert container["resources"]["claims"] == []


def test_a_pod_that_names_its_node_is_refused_where_a_scheduler_must_allocate_claims():
    assert planned(pod(gpus(2), nodeName="gpu-0"), by_gpus()).reason == "node-name"
    own = facts.ClusterFacts(namespace="prod", claim_templates={("prod", "nics"): frozenset({"dranet"})})
    claim = [{"name": "mine", "resourceClaimTemplateName": "nics"}]
    outcome = planned(pod(gpus(2), nodeName="gpu-0", resourceClaims=claim), by_gpus(), own)
    assert isinstance(outcome, pod_changes.Injection), "an author's own claim may be allocated already"
    cpu_only = pod(cpu(), nodeName="gpu-0", annotations={"railwright.io/rails": "none"})
    assert record(admitted(cpu_only, by_gpus()))["role"] == "excluded"
