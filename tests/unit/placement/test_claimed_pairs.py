"""Placement counts true pairs: free GPUs beside free rails, as the constraints of claims ask."""

import devices
import msgspec
import pytest
from claimed import GPU, build_claim, build_node, build_pod, build_template, name_devices, policy
from placing import build_cluster, create_assumed_pods, score_once

from railwright.fabric import resources
from railwright.fabric.claims import claim_index
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

LEAVES = {"a-0": "a", "a-1": "a", "b-0": "b", "b-1": "b"}


@pytest.fixture
def cluster():
    cluster = build_cluster([build_node(name, leaf) for name, leaf in LEAVES.items()])
    name_devices(cluster)
    for name in LEAVES:
        for offered in devices.read_slices(*devices.build_slices(name)):
            cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))
    cluster.change_templates(lambda known: known.template_sink.upsert(build_template("t", (0, 1))))
    return cluster


def hold_gpus(cluster, on, first=2, count=2):
    """Return a claim of GPUs without NICs: by default both beside rail1."""
    tree = build_claim(f"gpus-{on}-{first}", (), gpus=count, pod_uid=f"uid-gpus-{on}", on=on, first_gpu=first)
    cluster.upsert_claim(devices.read_claim(tree))
    return devices.read_claim(tree)


def build_request(cluster, pod, **placement):
    return scheduling_request.build_request(
        pod,
        policy(**placement),
        {},
        list(LEAVES),
        requests=cluster.compute_requests(pod, resources.compute_requests(pod.spec)),
        pairs=cluster.read_pairs(claim_index.identify_claims(pod)),
    )


def filter_nodes(cluster, pod, assumed=None):
    return engine.PlacementEngine(cluster, assumed or create_assumed_pods()).filter(build_request(cluster, pod))


def add_pods(cluster, *pods):
    for pod in pods:
        cluster.upsert_pod(pod)
    return pods


def test_a_node_with_free_gpus_and_rails_that_are_no_pair_is_refused_with_the_reason(cluster):
    claim = hold_gpus(cluster, "a-0")
    [pod] = add_pods(cluster, build_pod("p"))
    free = cluster.get_free("a-0")
    assert free[GPU] == 6000
    answer = filter_nodes(cluster, pod)
    assert list(answer.feasible) == ["a-1", "b-0", "b-1"]
    [refused] = answer.rejections.values()
    assert (refused.reason.code, refused.is_unresolvable) == (Code.PAIR_BUSY, False)
    assert rendering.render(refused.reason) == (
        "no free pair: 1 rail1 and 1 nvidia.com/gpu needed with the same resource.kubernetes.io/pcieRoot"
    )
    cluster.remove_claim(claim)
    assert len(filter_nodes(cluster, pod).feasible) == 4


def test_a_gang_is_planned_on_a_leaf_whose_nodes_have_the_pairs(cluster):
    hold_gpus(cluster, "a-0")
    first, _ = add_pods(cluster, *(build_pod(name, group="g") for name in ("p-0", "p-1")))
    decision = score_once(build_request(cluster, first), cluster)
    assert [leaf[0] for leaf in decision.plan.leaves] == ["b"]


def test_a_gang_without_enough_pairs_is_explained(cluster):
    for name in LEAVES:
        hold_gpus(cluster, name)
    first, _ = add_pods(cluster, *(build_pod(name, group="g") for name in ("p-0", "p-1")))
    decision = score_once(build_request(cluster, first), cluster)
    assert not decision.plan.is_complete
    reasons = [rendering.render(why) for why in decision.diagnose().why]
    assert any("no free pair: 1 rail1 and 1 nvidia.com/gpu needed" in why for why in reasons), reasons


def test_without_a_constraint_the_devices_need_not_be_beside_each_other(cluster):
    hold_gpus(cluster, "a-0")
    tree = build_claim("own", (0, 1), gpus=2)
    del tree["spec"]["devices"]["constraints"]
    cluster.upsert_claim(devices.read_claim(tree))
    [pod] = add_pods(cluster, build_pod("p", templates=(), claims=("own",)))
    assert len(filter_nodes(cluster, pod).feasible) == 4


def test_the_devices_that_a_pod_holds_itself_are_its_pairs(cluster):
    [pod] = add_pods(cluster, build_pod("p"))
    tree = build_claim("p-claim", (0, 1), gpus=2, pod_uid="uid-p", on="a-0", entry="railwright")
    for number, result in enumerate(tree["status"]["allocation"]["devices"]["results"][:2]):
        result["device"] = f"gpu-{2 * number}"  # one GPU beside each rail
    cluster.upsert_claim(devices.read_claim(tree))
    hold_gpus(cluster, "a-0", first=1, count=1)
    hold_gpus(cluster, "a-0", first=3, count=1)
    assert "a-0" in filter_nodes(cluster, pod).feasible


def any_nic_template(cluster):
    """Add a template of one GPU with any NIC beside it."""
    template = build_template("any", (0,))
    devices_of_claim = template.spec.spec.devices
    gpu, rail = devices_of_claim.requests
    anything = msgspec.structs.replace(rail, exactly=msgspec.structs.replace(rail.exactly, selectors=None))
    changed = msgspec.structs.replace(devices_of_claim, requests_or_none=(gpu, anything))
    spec = msgspec.structs.replace(template.spec.spec, devices=changed)
    template = msgspec.structs.replace(template, spec=msgspec.structs.replace(template.spec, spec=spec))
    cluster.change_templates(lambda known: known.template_sink.upsert(template))


@pytest.mark.parametrize("is_bound", [False, True])
def test_pods_that_wait_for_their_claims_on_a_node_take_its_pairs(cluster, is_bound):
    any_nic_template(cluster)
    hold_gpus(cluster, "a-0", first=0, count=6)  # one pair is left
    assumed = create_assumed_pods()
    earlier, pod = add_pods(
        cluster,
        build_pod("earlier", templates=("any",), on="a-0" if is_bound else ""),
        build_pod("p", templates=("any",)),
    )
    if not is_bound:
        entry = assumed_pods.AssumedPod(
            uid="uid-earlier",
            key="train/earlier",
            gang=membership.GangKey(""),
            rank=membership.Rank(role=1, index=0, name="earlier"),
            node="a-0",
            requests=cluster.pods[earlier.metadata.uid].requests,
            state=assumed_pods.State.ALLOCATED,
            since=0.0,
        )
        assumed.assume(entry)
    answer = filter_nodes(cluster, pod, assumed)
    assert "a-0" not in answer.feasible
    [refused] = answer.rejections.values()
    assert refused.reason.code == Code.PAIR_BUSY
    cluster.remove_pod("uid-earlier")
    assumed.forget("uid-earlier")
    assert "a-0" in filter_nodes(cluster, pod, assumed).feasible


def test_slots_of_a_node_are_its_pairs(cluster):
    any_nic_template(cluster)
    [pod] = add_pods(cluster, build_pod("p", templates=("any",)))

    def count_slots():
        request = build_request(cluster, pod, numa="ignore")
        index = engine.PlacementEngine(cluster, create_assumed_pods()).get_index(request)
        return len(index.class_of_node["a-0"].capacity.slot_numa_factors)

    assert count_slots() == 4
    hold_gpus(cluster, "a-0", first=0, count=4)  # four GPUs are left, beside two NICs
    assert count_slots() == 2


def test_nodes_whose_first_rails_are_busy_suit_a_pod_that_takes_any_rail(cluster):
    any_nic_template(cluster)
    for number in range(2):
        tree = build_claim(f"rail{number}", (number,), gpus=0, pod_uid=f"uid-rail{number}", on="a-0")
        cluster.upsert_claim(devices.read_claim(tree))
    [pod] = add_pods(cluster, build_pod("p", templates=("any",)))
    request = build_request(cluster, pod)
    assert request.needs == ()
    decision = score_once(request, cluster)
    assert decision.plan.bandwidth == 1.0
    assert decision.scores["a-0"] >= decision.scores["a-1"]
