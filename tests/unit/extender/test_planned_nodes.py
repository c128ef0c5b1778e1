"""A pod of a gang that fits is left with the node that the plan gives it; kube-scheduler then asks for no scores."""

import collections

import extending
import pytest
from msgspec.structs import replace
from placing import build_pod_group, leaves, node, pod

SIZE = 3
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}


class Asked(extending.Site):
    """A gang of three for leaf a, which holds it tightly; leaf b is larger. Records what was counted."""

    def __init__(self) -> None:
        self.asked, self.rejected = [], collections.Counter()
        super().__init__(
            leaves(a=3, b=4),
            observe=lambda verb, *_: self.asked.append(verb),
            count_rejected=lambda code, nodes: self.rejected.update({code: nodes}),
        )
        self.peers = [pod(f"w-{rank}", group="g") for rank in range(SIZE)]
        self.add_gang(self.peers, "g")


def record_decisions(cluster):
    """Return a list to which each decision is added."""
    decisions, score = [], cluster.verbs.decider.score
    cluster.verbs.decider.score = lambda *arguments: decisions.append(score(*arguments)) or decisions[-1]
    return decisions


@pytest.fixture
def cluster():
    return Asked()


def test_each_pod_of_a_gang_is_left_with_its_planned_node(cluster):
    """Also if kube-scheduler offers the nodes again, because it does not count the rails."""
    left = [cluster.filter(peer) for peer in cluster.peers]
    assert sorted(left) == [["a-00"], ["a-01"], ["a-02"]]
    assert cluster.asked == ["filter"] * SIZE
    assert not cluster.rejected


def test_the_decision_is_explained_as_after_scores(cluster):
    (node_name,) = cluster.filter(cluster.peers[0])
    explanation = cluster.verbs.decider.explain("train", "w-0")
    scores = {row["node"]: row["score"] for row in explanation.nodes}
    assert scores[node_name] == max(scores.values())
    assert (explanation.complete, explanation.why, explanation.candidate_nodes) == (True, (), len(cluster.names))


def test_the_node_counts_as_taken_for_volcano(cluster):
    (node_name,) = cluster.filter(cluster.peers[0])
    taken = cluster.verbs.decider.unseen.sum_requests(cluster.state.cluster, cluster.now, except_uid="")
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
def test_preferences_of_the_author_are_left_to_kube_scheduler(cluster, spec):
    assert cluster.filter(cluster.peers[0], **spec) == cluster.names


def test_a_pod_that_is_tried_again_gets_all_nodes(cluster):
    assert len(cluster.filter(cluster.peers[0])) == 1
    assert cluster.filter(cluster.peers[0]) == cluster.names
    assert len(cluster.filter(cluster.peers[1])) == 1


def test_a_pod_that_is_created_again_need_not_get_the_node_on_which_it_failed(cluster):
    """kubelet may refuse each pod on one node, which stays feasible."""
    left, last = set(), cluster.peers[2]
    for attempt in range(20):
        cluster.pods.remove(last)
        last = replace(last, metadata=replace(last.metadata, uid=f"uid-{attempt}"))
        cluster.pods.upsert(last)
        left.update(cluster.filter(last))
        cluster.now += 60
    assert left == {"a-00", "a-01", "a-02"}


def test_a_plan_does_not_outlive_the_attempt_for_which_it_was_made(cluster):
    peer, decisions = cluster.peers[0], record_decisions(cluster)
    for _ in range(2):
        cluster.filter(peer)
    assert len(decisions) == 2
    nominated = replace(peer, status=replace(peer.status, nominated_node_name="a-00"))
    assert cluster.filter(nominated) == cluster.names  # without a plan
    cluster.score(nominated)
    assert len(decisions) == 3


def test_nodes_that_pods_should_avoid_are_not_chosen(cluster):
    avoided = [{"key": "maintenance", "effect": "PreferNoSchedule"}]
    cluster.state.cluster.upsert_node(node("a-00", "a", taints=avoided))
    assert cluster.filter(cluster.peers[0]) in (["a-01"], ["a-02"])
    for name in ("a-01", "a-02"):
        cluster.state.cluster.upsert_node(node(name, "a", taints=avoided))
    assert cluster.filter(cluster.peers[1]) == cluster.names


@pytest.mark.parametrize("gang", ["too large", "of one pod", "none"])
def test_other_pods_get_all_nodes_and_are_decided_once(cluster, gang):
    size = {"too large": len(cluster.names) + 1, "of one pod": 1}.get(gang)
    lone = pod("lone", group="other" if size else "")
    if size:
        cluster.state.cluster.upsert_pod_group(build_pod_group("train", "other", size))
    cluster.pods.upsert(lone)
    decisions = record_decisions(cluster)
    assert cluster.filter(lone) == cluster.names
    assert set(cluster.score(lone)) == set(cluster.names)
    assert len(decisions) == 1
    assert cluster.asked == ["filter", "prioritize"]
