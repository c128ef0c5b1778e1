"""Pods of kube-scheduler: the node that a pod is left with, and those of pods whose bindings are not seen yet."""

import collections
import json

import extending
import pytest
from placing import LEAF, build_pod_group, change_pod, leaves, node, pod

from railwright.fabric import views
from railwright.fabric.workloads import volcano

NODES = [f"n-{i}" for i in range(6)]
SIZE = 4


class Asked(extending.Site):
    """Two nodes a leaf, for kube-scheduler: filter leaves all nodes to every pod."""

    def __init__(self) -> None:
        super().__init__([node(name, f"leaf-{index // 2}") for index, name in enumerate(NODES)])
        self.state.cluster.upsert_size(volcano.POD_GROUPS, build_pod_group("train", "g", SIZE))

    def filter(self, pod: views.Pod, names=None, **spec: object) -> list[str]:
        self.pods.upsert(pod)
        return super().filter(pod, names, **{**extending.PREFERRING, **spec})


def build_peer(rank: int, **kinds) -> views.Pod:
    return pod(f"w-{rank}", group="g", **kinds)


@pytest.fixture
def cluster():
    return Asked()


def test_the_one_node_missing_for_the_next_equal_pod_is_inferred_for_the_last_pod(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.now += 0.02
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1
    cluster.now += 5
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


@pytest.mark.parametrize("seconds", [1.5, 7.0, 3600.0])
def test_nothing_is_inferred_from_an_old_request(cluster, seconds):
    """Its gang was released, and the node taken by somebody since; a binding of its own would have been seen."""
    cluster.filter(build_peer(3), NODES[:2])
    cluster.now += seconds
    cluster.filter(build_peer(0), NODES[1:])
    assert cluster.count_remaining(build_peer(0), NODES[1:]) == SIZE


def test_an_inference_ends_when_another_pod_is_bound_to_the_node(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1
    cluster.state.cluster.upsert_pod(pod("other", on=NODES[0]))
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


ANTI_AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": LEAF}]}
SPREAD = [extending.SOFT_SPREAD, {**extending.SOFT_SPREAD, "topologyKey": LEAF}]
CHANGES = {  # of the first node between two requests, after which the second pod cannot use it
    "another pod is bound there": lambda cluster: cluster.upsert_pod(pod("other", on=NODES[0])),
    "it is cordoned": lambda cluster: cluster.upsert_node(node(NODES[0], "leaf-0", unschedulable=True)),
    "it is gone": lambda cluster: cluster.remove_node(NODES[0]),
    "it has a taint": lambda cluster: cluster.upsert_node(
        node(NODES[0], "leaf-0", taints=[{"key": "k", "effect": "NoSchedule"}])
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_node_that_the_next_pod_cannot_use_is_not_missing_because_of_the_last_one(cluster, change):
    cluster.filter(build_peer(0), NODES)
    change(cluster.state.cluster)
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


@pytest.mark.parametrize(
    ("first", "offered", "spec"),
    [
        ({"gpus": 4}, (NODES, NODES[1:]), {}),
        ({}, (NODES[:4], NODES[1:5]), {}),
        ({}, (NODES, NODES[1:]), {"nodeSelector": {LEAF: "leaf-2"}}),
        ({}, (NODES, NODES[1:]), {"schedulerName": "another"}),
        ({}, (NODES, NODES[1:]), {"affinity": {"podAntiAffinity": ANTI_AFFINITY}}),
        ({}, (NODES, NODES[1:]), {"topologySpreadConstraints": SPREAD}),
        ({}, (NODES, NODES[1:]), {"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
    ],
    ids=["size", "sample of nodes", "selector", "kube-scheduler", "anti-affinity", "spread", "tolerations"],
)
def test_pods_that_may_go_to_different_nodes_allow_no_inference(cluster, first, offered, spec):
    cluster.filter(build_peer(0, **first), offered[0], **spec)
    cluster.filter(build_peer(1), offered[1])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


def test_requests_of_another_kube_scheduler_in_between_do_not_prevent_an_inference(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.filter(pod("lone", gpus=8), NODES[:3], schedulerName="another")
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1


def test_the_node_of_a_pod_between_two_attempts_of_another_is_inferred(cluster):
    for asked, offered in ((build_peer(0), NODES), (pod("lone"), NODES), (build_peer(0), NODES[1:])):
        cluster.filter(asked, offered)
    [missing] = cluster.verbs.decider.unseen.list_missing(cluster.state.cluster, cluster.now)
    assert (missing.uid, missing.node) == ("uid-lone", NODES[0])


@pytest.mark.parametrize("is_grouped", [True, False])
def test_a_rail_that_is_offered_twice_shows_something_of_pod_groups_only(cluster, is_grouped):
    """The pods of other gangs are bound one by one, so that a pod which failed leaves its node to the next."""
    spec = {"schedulingGroup": {"podGroupName": "g"}} if is_grouped else {}
    for rank in range(2):
        cluster.filter(build_peer(rank, gpus=2, **spec), NODES, schedulerName="kube")
    assert cluster.verbs.decider.unseen.has_offered_twice("kube", cluster.now) is is_grouped


def test_names_of_schedulers_do_not_fill_the_memory(cluster):
    """Any caller can send any name."""
    for scheduler in range(70):
        for rank in range(2):
            cluster.filter(
                build_peer(rank, gpus=2, schedulingGroup={"podGroupName": "g"}), NODES, schedulerName=f"s{scheduler}"
            )
    unseen = cluster.verbs.decider.unseen
    assert len(unseen._counts_rails) == len(unseen._uncounted_at) == 64


def test_a_gang_that_is_scheduled_again_was_released_completely(cluster):
    """Coscheduling holds back a gang's pods until all have a node, and lets all of them go where one has none."""
    for rank in range(3):
        cluster.filter(build_peer(rank), NODES[rank:])
    assert cluster.count_remaining(build_peer(2), NODES[2:]) == SIZE - 2
    cluster.filter(build_peer(0), NODES[3:])
    assert cluster.count_remaining(build_peer(0), NODES[3:]) == SIZE


def test_a_gang_is_released_completely_if_its_last_pod_found_no_node_and_comes_first(cluster):
    for rank in range(3):
        cluster.filter(build_peer(rank), NODES[rank:])
    cluster.filter(build_peer(3), [])
    assert cluster.count_remaining(build_peer(3), NODES[2:]) == SIZE - 2
    cluster.now += 1.5  # kube-scheduler tries no pod again within a second
    cluster.filter(build_peer(3), NODES[2:])  # others took the nodes of its peers
    assert cluster.count_remaining(build_peer(3), NODES[2:]) == SIZE


def test_a_repeated_filter_call_is_not_another_attempt(cluster):
    cluster.filter(build_peer(0), NODES)
    for _ in range(3):
        cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1


# --- the planned node, with which a pod of a gang that fits is left -------------------------------------------


PEERS = 3
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}


class Filtering(extending.Site):
    """A gang of three for leaf a, which holds it tightly; leaf b is larger. Records what was counted."""

    def __init__(self) -> None:
        self.asked, self.rejected = [], collections.Counter()
        super().__init__(
            leaves(a=3, b=4),
            observe=lambda verb, *_: self.asked.append(verb),
            count_rejected=lambda code, nodes: self.rejected.update({code: nodes}),
        )
        self.peers = [pod(f"w-{rank}", group="g") for rank in range(PEERS)]
        self.add_gang(self.peers, "g")


def record_decisions(gang):
    """Return a list to which each decision is added."""
    decisions, score = [], gang.verbs.decider.score
    gang.verbs.decider.score = lambda *arguments, **named: decisions.append(score(*arguments, **named)) or decisions[-1]
    return decisions


@pytest.fixture
def gang():
    return Filtering()


def test_each_pod_of_a_gang_is_left_with_its_planned_node(gang):
    """Also if kube-scheduler offers the nodes again, because it does not count the rails."""
    left = [gang.filter(peer) for peer in gang.peers]
    assert sorted(left) == [["a-00"], ["a-01"], ["a-02"]]
    assert gang.asked == ["filter"] * PEERS
    assert not gang.rejected


def test_the_decision_is_explained_as_after_scores(gang):
    (node_name,) = gang.filter(gang.peers[0])
    explanation = gang.verbs.decider.explain("train", "w-0")
    scores = {row["node"]: row["score"] for row in explanation.nodes}
    assert scores[node_name] == max(scores.values())
    assert (explanation.complete, explanation.why, explanation.candidate_nodes) == (True, (), len(gang.names))


def test_why_others_are_rejected_is_sent_only_if_all_feasible_nodes_are_left(gang):
    """kube-scheduler reads it only if no node is left. It is counted and explained in any case."""
    gang.pods.upsert(pod("holder", on="b-00"))
    body = json.loads(extending.build_body(gang.peers[0], gang.names))
    answers = [gang.ask_kube("filter", body) for _ in range(2)]
    assert [(len(answer["NodeNames"]), list(answer["FailedNodes"])) for answer in answers] == [(1, []), (6, ["b-00"])]
    assert gang.rejected == {"RailBusy": 2}
    assert [row["node"] for row in gang.explain("w-0").nodes if "rejection" in row] == ["b-00"]


def test_the_node_is_scored_by_the_decision_by_which_it_was_left(gang):
    """Other callers than kube-scheduler may ask for the score."""
    decisions = record_decisions(gang)
    (node_name,) = gang.filter(gang.peers[0])
    assert gang.score(gang.peers[0], [node_name]) == {node_name: 10}
    assert len(decisions) == 1


def test_the_node_counts_as_taken_for_volcano(gang):
    (node_name,) = gang.filter(gang.peers[0])
    taken = gang.verbs.decider.unseen.sum_requests(gang.state.cluster, gang.now, except_uid="")
    assert list(taken) == [node_name]


@pytest.mark.parametrize(
    "spec",
    [
        extending.PREFERRING,
        {"affinity": {"nodeAffinity": PREFERRED}},
        {"affinity": {"podAffinity": PREFERRED}},
        {"affinity": {"podAntiAffinity": PREFERRED}},
    ],
    ids=["spread", "node affinity", "pod affinity", "anti-affinity"],
)
def test_preferences_of_the_author_are_left_to_kube_scheduler(gang, spec):
    assert gang.filter(gang.peers[0], **spec) == gang.names


def test_a_pod_that_is_tried_again_gets_all_nodes(gang):
    assert len(gang.filter(gang.peers[0])) == 1
    assert gang.filter(gang.peers[0]) == gang.names
    assert len(gang.filter(gang.peers[1])) == 1


def test_a_pod_that_is_created_again_need_not_get_the_node_on_which_it_failed(gang):
    """kubelet may refuse each pod on one node, which stays feasible."""
    left, last = set(), gang.peers[2]
    for attempt in range(20):
        gang.pods.remove(last)
        last = change_pod(last, metadata={"uid": f"uid-{attempt}"})
        gang.pods.upsert(last)
        left.update(gang.filter(last))
        gang.now += 60
    assert left == {"a-00", "a-01", "a-02"}


def test_a_plan_does_not_outlive_the_attempt_for_which_it_was_made(gang):
    peer, decisions = gang.peers[0], record_decisions(gang)
    for _ in range(2):
        gang.filter(peer)
    assert len(decisions) == 2
    nominated = change_pod(peer, status={"nominated_node_name": "a-00"})
    assert gang.filter(nominated) == gang.names  # without a plan
    gang.score(nominated)
    assert len(decisions) == 3


def test_nodes_that_pods_should_avoid_are_not_chosen(gang):
    avoided = [{"key": "maintenance", "effect": "PreferNoSchedule"}]
    gang.state.cluster.upsert_node(node("a-00", "a", taints=avoided))
    assert gang.filter(gang.peers[0]) in (["a-01"], ["a-02"])
    for name in ("a-01", "a-02"):
        gang.state.cluster.upsert_node(node(name, "a", taints=avoided))
    assert gang.filter(gang.peers[1]) == gang.names


@pytest.mark.parametrize("other", ["too large", "of one pod", "none"])
def test_other_pods_get_all_nodes_and_are_decided_once(gang, other):
    size = {"too large": len(gang.names) + 1, "of one pod": 1}.get(other)
    lone = pod("lone", group="other" if size else "")
    if size:
        gang.state.cluster.upsert_size(volcano.POD_GROUPS, build_pod_group("train", "other", size))
    gang.pods.upsert(lone)
    decisions = record_decisions(gang)
    assert gang.filter(lone) == gang.names
    assert set(gang.score(lone)) == set(gang.names)
    assert len(decisions) == 1
    assert gang.asked == ["filter", "prioritize"]
