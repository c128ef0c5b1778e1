"""Both protocols on captured bodies: the answers have the form that each scheduler reads."""

import itertools
import json
from collections import Counter

import devices
import extending
import msgspec
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st
from placing import GPU, LEAF, RESOURCES, build_node, build_pod, build_pod_with, build_policy, change_fabric, change_pod

from extender import decoding, kube_scheduler
from railwright.fabric import names, views
from railwright.fabric.claims import objects
from railwright.fabric.placement import decisions
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.nodes import score_terms


class Handlers(extending.Site):
    """The cluster of the eight captured nodes."""

    def __init__(self, given=None, *, nodes=None):
        self.rejected = Counter()
        super().__init__(
            nodes or [build_node(f"gpu-{i}", f"leaf-{i // 4}", rails_each=100) for i in range(8)],
            (),
            given,
            now=0.0,
            count_rejected=lambda code, nodes: self.rejected.update({code: nodes}),
        )


@pytest.fixture
def handlers():
    return Handlers()


def raw(tree) -> bytes:
    return json.dumps(tree).encode()


def test_prioritize_reuses_filters_decision_only_for_the_same_pod():
    nodes = [build_node(f"gpu-{number}", f"leaf-{number // 4}", rails_each=2) for number in range(8)]
    gang = [build_pod("a", group="g"), build_pod("b", group="g", gpus=4), build_pod("c", on="gpu-5", gpus=4)]
    scores = []
    for filtered in (2, 0):
        site = Handlers(build_policy(domains=[LEAF]), nodes=nodes)
        site.add_gang(gang, "g")
        left = [site.filter(gang[0]) for _ in range(filtered)]  # all nodes for a pod that comes back
        assert left[1:] in ([], [site.names])
        scores.append(site.score(gang[1]))
    assert scores[0] == scores[1] != site.score(gang[0])


def test_a_pod_without_opt_in_gets_all_nodes_with_score_0(handlers):
    request_body = extending.build_prioritize("gpu-0", "gpu-6")
    del request_body["task"]["Pod"]["metadata"]["labels"]["railwright.io/fabric"]
    request_body["task"]["Pod"]["metadata"].get("annotations", {}).pop("railwright.io/injection", None)
    assert set(handlers.ask_volcano("prioritize", request_body)["nodeScore"].values()) == {0.0}
    request = {"Pod": request_body["task"]["Pod"], "Nodes": None, "NodeNames": ["gpu-0", "gpu-1"]}
    assert handlers.ask_kube("filter", request)["NodeNames"] == ["gpu-0", "gpu-1"]
    assert {row["Score"] for row in handlers.ask_kube("prioritize", request)} == {0}


def test_allocate_adds_a_placed_pod_to_the_gang_and_deallocate_removes_it(handlers):
    handlers.pods.upsert(extending.WAITING)
    event, scored = extending.build_event("gpu-5"), extending.build_prioritize("gpu-0", "gpu-6")
    assert event["task"]["NodeName"] == "gpu-5"
    scored["task"]["UID"] = scored["task"]["Pod"]["metadata"]["uid"] = "another"
    before = handlers.ask_volcano("prioritize", scored)["nodeScore"]
    assert handlers.verbs.volcano.allocate(raw(event), "") == b'{"errorMessage":""}'
    with_peer = handlers.ask_volcano("prioritize", scored)["nodeScore"]
    assert with_peer["gpu-6"] > with_peer["gpu-0"]
    handlers.verbs.volcano.deallocate(raw(event))
    handlers.verbs.volcano.deallocate(raw(event))
    assert handlers.ask_volcano("prioritize", scored)["nodeScore"] == before


def test_an_allocated_pod_is_no_longer_assumed_once_the_watch_shows_it_bound(handlers):
    pods = handlers.pods
    pods.upsert(extending.WAITING)
    event = extending.build_event("gpu-5")
    handlers.verbs.volcano.allocate(raw(event), "")
    pods.upsert(change_pod(build_pod("rdma-test-master-0", on="gpu-3"), metadata={"uid": event["task"]["UID"]}))
    assert len(handlers.state.assumed) == 0
    handlers.verbs.volcano.allocate(raw(event), "")
    assert len(handlers.state.assumed) == 0, "a late event must not count a bound pod twice"


def integers(**scores: float) -> dict[str, int]:
    return {row["Host"]: row["Score"] for row in json.loads(kube_scheduler.encode_priorities(scores))}


def test_nearly_equal_scores_become_the_same_integer_and_a_node_of_another_leaf_gets_five_less():
    assert integers(a=96.1, b=96.0, c=95.9) == {"a": 10, "b": 10, "c": 10}
    another_leaf = score_terms.LOCALITY_WEIGHT * (decisions.TARGET - decisions.PLANNED)
    numa_split, one_rail_of_eight = score_terms.NUMA.weight / 2, score_terms.RAILS.weight / 8
    priorities = integers(best=96, rail=96 - one_rail_of_eight, numa=96 - numa_split, leaf=96 - another_leaf, unknown=0)
    assert priorities == {"best": 10, "rail": 8, "numa": 7, "leaf": 5, "unknown": 0}
    assert integers(a=40.0, b=40.0) == {"a": 10, "b": 10}
    assert integers(a=0.0, b=0.0) == {"a": 0, "b": 0}, "a pod that did not opt in has no opinion"
    assert integers() == {}


@given_(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_integer_scores_keep_the_order_and_compress_differences_by_the_square_root(scores):
    priorities = integers(**{f"n{i}": score for i, score in enumerate(scores)})
    best = max(scores)
    for index, score in enumerate(scores):
        lost = priorities[f"n{scores.index(best)}"] - priorities[f"n{index}"]
        assert 0 <= priorities[f"n{index}"] <= 10
        assert abs(lost - (best - score) ** 0.5) <= 0.5 + 1e-9
    ranked = sorted(range(len(scores)), key=scores.__getitem__)
    assert all(priorities[f"n{low}"] <= priorities[f"n{high}"] for low, high in itertools.pairwise(ranked))


@pytest.mark.parametrize(
    ("verb", "given", "reason"),
    [
        ("filter", b"", "not the expected JSON"),
        ("filter", b"{}", "Pod is missing"),
        ("filter", b'{"Pod":{}}', "NodeNames is missing"),
        ("filter", b'{"Pod":{},"Nodes":{"items":[]}}', "nodeCacheCapable: true"),
        ("filter", b'{"Pod":{},"NodeNames":[1]}', "not the expected JSON"),
        ("prioritize", b'{"Pod":1}', "not the expected JSON"),
        ("volcano_prioritize", b'{"nodes":[]}', "task is missing"),
        ("volcano_prioritize", b'{"task":{}}', "nodes is missing"),
        ("volcano_predicate", b'{"task":{}}', "node is missing"),
        ("volcano_allocate", b"{}", "task is missing"),
        ("volcano_allocate", b'{"task":{}}', "task.UID is missing"),
        ("volcano_deallocate", b"[]", "not the expected JSON"),
        ("volcano_close_session", b"x", "not the expected JSON"),
        ("volcano_close_session", b'{"a":' * 2000, "not the expected JSON"),
        ("filter", b"\xff\xfe", "not the expected JSON"),
    ],
)
def test_a_malformed_body_is_refused_with_its_reason(handlers, verb, given, reason):
    with pytest.raises(decoding.MalformedError, match=reason):
        handlers.verbs.find(verb)(given, *([""] if verb in ("volcano_allocate", "volcano_close_session") else []))


def test_an_explanation_names_the_free_and_needed_devices_of_a_node_and_their_user():
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0"), build_node("gpu-1")])
    for created in (build_pod("holder", on="gpu-1", gpus=1), build_pod("waiting")):
        handlers.pods.upsert(created)
    explanation = handlers.explain("waiting")
    busy = next(row for row in explanation.nodes if row.node == "gpu-1")
    assert busy.reasons[0].message == "rail0 has 0 of 1 free, 1 needed, held by train/holder"
    assert busy.rejection is None
    assert {row.node: row.fits for row in explanation.nodes} == {"gpu-0": True, "gpu-1": False}
    assert handlers.explain("other") == "no opted-in pod train/other is known here"


@pytest.mark.parametrize(
    ("rails", "needs"),
    [
        (1, [f"rail{rail}: 1 {resource}" for rail, resource in enumerate(RESOURCES)]),
        (0, [f"rail{rail}: {resource} (not requested)" for rail, resource in enumerate(RESOURCES)]),
    ],
    ids=["requested", "skip: devices"],
)
def test_an_explanation_lists_rails_that_a_pod_needs_without_requesting_their_devices(rails, needs):
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0")])
    handlers.pods.upsert(build_pod("waiting", rails=rails))
    assert handlers.explain("waiting").needs == needs


OFFERS = {  # what a device class offers, and a pod's requests: what the only node lacks, and if it may fit
    "another resource": ("example.com/other", {RESOURCES[0]: "1"}, ["rail0 has 0 of 0 free, 1 needed"], False),
    "the rail": (RESOURCES[0], {RESOURCES[0]: "1"}, ["rail0 has 0 of 0 free, 1 needed"], True),
    "a resource that is no rail": ("example.com/scratch", {RESOURCES[1]: "1", "example.com/scratch": "1"}, [], True),
}


@pytest.mark.parametrize(("resource", "requests", "lacks", "fits"), OFFERS.values(), ids=OFFERS)
def test_a_resource_that_a_device_class_offers_does_not_rule_out_a_node(resource, requests, lacks, fits):
    handlers = Handlers(
        build_policy(domains=[LEAF]), nodes=[build_node("gpu-0", rails_each=dict.fromkeys(RESOURCES[1:], 1))]
    )
    handlers.pods.upsert(build_pod_with("waiting", {GPU: "8", **requests}))
    offered = [msgspec.convert(devices.build_class("nics", "true", resource), objects.DeviceClass)]
    handlers.state.cluster.change_devices(lambda changed: changed.class_sink.replace(offered))
    (row,) = handlers.explain("waiting").nodes
    assert ([cause.message for cause in row.reasons][:1], row.fits) == (lacks, fits)


def test_an_explanation_names_first_the_nodes_that_the_pod_may_use():
    others = [build_node(f"cpu-{index}", rails_each={}) for index in range(2 * node_explainer.MAX_ROWS)]
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[*others, build_node("gpu-0", labels={"pool": "x"})])
    handlers.pods.upsert(build_pod("holder", on="gpu-0"))
    handlers.pods.upsert(change_pod(build_pod("waiting"), spec={"node_selector": {"pool": "x"}}))
    row = handlers.explain("waiting").nodes[0]
    assert (row.node, row.reasons[0].message) == ("gpu-0", "rail0 has 0 of 1 free, 1 needed, held by train/holder")


INELIGIBLE = "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity"


@pytest.mark.parametrize(
    ("pool", "cpu", "unschedulable", "reason"),
    [
        ("training", 1, True, INELIGIBLE),
        ("other", 1, False, INELIGIBLE),
        ("training", 200, False, "too little CPU or memory, or too many pods"),
        ("training", 1, False, ""),
    ],
    ids=["cordoned", "not selected", "too little CPU", "free"],
)
def test_an_ineligible_node_does_not_fit_even_with_free_devices(pool, cpu, unschedulable, reason):
    node = build_node("gpu-0", labels={"pool": pool}, unschedulable=unschedulable)
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[node])
    waiting = build_pod_with("waiting", {GPU: "8", "cpu": str(cpu)})
    handlers.pods.upsert(change_pod(waiting, spec={"node_selector": {"pool": "training"}}))
    (row,) = handlers.explain("waiting").nodes
    assert ([cause.text for cause in row.reasons], row.fits) == ([reason] if reason else [], not reason)


def test_a_fabric_that_the_policy_lacks_is_the_reason_why_a_pod_is_not_explained():
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0")])
    handlers.pods.upsert(build_pod("old", label="renamed"))
    assert handlers.explain("old").startswith(
        "these pods name fabric 'renamed', but the current policy has no such fabric, so no plan is made; "
    )


def test_a_pod_that_is_created_again_is_explained_by_its_own_object():
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0"), build_node("gpu-1")])
    first, second = (change_pod(build_pod("again", gpus=gpus), metadata={"uid": f"uid-{gpus}"}) for gpus in (8, 4))
    handlers.pods.upsert(first)
    assert handlers.explain("again").node == ""
    handlers.pods.remove(first)
    assert handlers.explain("again") == "no opted-in pod train/again is known here"
    handlers.pods.upsert(change_pod(second, spec={"node_name": "gpu-1"}))
    explanation = handlers.explain("again")
    assert explanation.node == "gpu-1"
    scores = {row.node: row.score for row in explanation.nodes}
    assert scores["gpu-1"] == scores["gpu-0"], "what the pod itself takes counts as free"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_unbound_is_no_longer_assumed(handlers, phase):
    handlers.pods.upsert(extending.WAITING)
    handlers.verbs.volcano.allocate(raw(extending.build_event("gpu-5")), "")
    (entry,) = handlers.state.assumed
    ended = msgspec.convert({"metadata": {"name": "x", "uid": entry.uid}, "status": {"phase": phase}}, views.Pod)
    handlers.pods.upsert(ended)
    assert len(handlers.state.assumed) == 0


def test_a_simulated_eviction_does_not_free_the_node_of_a_running_pod(handlers):
    event = extending.build_event("gpu-5")
    running = change_pod(build_pod("rdma-test-master-0", on="gpu-5"), metadata={"uid": event["task"]["UID"]})
    handlers.pods.upsert(running)
    used = dict(handlers.state.cluster.get_used("gpu-5"))
    for verb, status in (("deallocate", 64), ("allocate", 32), ("deallocate", 64)):
        event["task"]["Status"] = status
        assert handlers.ask_volcano(verb, event)["errorMessage"] == ""
        assert dict(handlers.state.cluster.get_used("gpu-5")) == used
        assert len(handlers.state.assumed) == 0


def test_a_rail_without_a_resource_is_counted_by_the_resource_of_its_network():
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0"), build_node("gpu-1")])
    rails = handlers.policy.document.fabrics["roce"].rails
    bare = [msgspec.structs.replace(rail, resource=None, network=f"net/{rail.name}") for rail in rails]
    handlers.policy = change_fabric(handlers.policy, rails=tuple(bare))
    handlers.state.cluster.upsert_pod(build_pod("holder", on="gpu-1", gpus=1))
    handlers.pods.upsert(build_pod("waiting", gpus=1, rails=0))

    def count_busy() -> int:
        rows = {row.node: row for row in handlers.explain("waiting").nodes}
        return len(rows["gpu-1"].reasons)

    assert count_busy() == 0, "nothing says what to count"
    feed = handlers.state.networks
    feed.replace([network(rail.name, resource) for rail, resource in zip(bare, RESOURCES, strict=True)])
    assert count_busy() == 4
    feed.upsert(network("rail0", None))
    assert count_busy() == 3
    for rail in bare:
        feed.remove(network(rail.name, None))
    assert not handlers.state.pools


def network(name, resource):
    annotations = {names.NAD_RESOURCE_NAME: resource} if resource else {}
    tree = {"metadata": {"namespace": "net", "name": name, "annotations": annotations}}
    return msgspec.convert(tree, views.NetworkAttachmentDefinition)


def prioritize_one(handlers: Handlers, waiting) -> float:
    """Return the score of the only node for a pod that Volcano asks about."""
    asked = {"task": extending.build_task(waiting), "nodes": [{"Name": "gpu-0"}]}
    return handlers.ask_volcano("prioritize", asked)["nodeScore"]["gpu-0"]


def test_a_node_that_volcano_offers_is_not_occupied_by_a_scored_pod_of_kube_scheduler():
    """A gang that fits nowhere is tried repeatedly, and no pod of it is placed."""
    handlers = Handlers(build_policy(domains=[LEAF]), nodes=[build_node("gpu-0", "leaf-0")])
    asked, task = build_pod("asked", group="g"), build_pod("task", group="v")
    for created in (asked, task):
        handlers.pods.upsert(created)
    before = prioritize_one(handlers, task)
    handlers.filter(asked)
    handlers.score(asked)
    assert handlers.state.assumed.get("uid-asked").node == "gpu-0"
    assert prioritize_one(handlers, task) == before
    assert handlers.state.assumed.get("uid-asked") is None
