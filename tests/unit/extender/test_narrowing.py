"""The nodes that filter leaves to a pod of a gang, and the node on which the pod counts until its binding."""

import extending
import pytest
from placing import LEAF, build_leaves, build_node, build_pod, build_policy

from extender import decider
from railwright.fabric.placement.state import assumed_pods

A = [f"a-{number:02}" for number in range(3)]
B = [f"b-{number:02}" for number in range(6)]


class Site(extending.Site):
    """Return leaves of 3 and 6 nodes, and a gang of 3, for which leaf a is the smallest that fits."""

    def __init__(self, nodes=None, size: int = 3, **kinds) -> None:
        super().__init__(nodes or build_leaves(a=3, b=6), (), build_policy(domains=[LEAF]))
        self.peers = [build_pod(f"w-{rank}", group="g", **kinds) for rank in range(size)]
        self.add_gang(self.peers, "g")

    def list_counted(self) -> dict[str, str]:
        return {entry.key.partition("/")[2]: entry.node for entry in self.state.assumed}


@pytest.fixture
def site():
    return Site()


def test_filter_returns_the_nodes_of_the_target_leaf_for_a_pod_of_a_gang(site):
    assert site.filter(site.peers[0]) == A
    assert site.filter(site.peers[1], [*A[1:], *B]) == A[1:]


def test_filter_returns_the_planned_leaf_of_each_rank():
    site = Site(size=8)
    assert [site.filter(site.peers[rank]) for rank in (0, 5, 6, 7)] == [B, B, A, A]


def test_nodes_outside_the_planned_leaf_are_not_reported_as_failed(site):
    answer = site.ask_kube("filter", {"Pod": extending.build_tree(site.peers[0]), "NodeNames": site.names})
    assert answer == {"NodeNames": A, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}


def test_filter_returns_all_nodes_if_none_of_the_target_leaf_is_offered(site):
    for offered in (B, B[:1], []):
        assert site.filter(site.peers[0], offered) == offered


def test_filter_returns_all_nodes_for_a_gang_that_does_not_fit_and_for_a_single_pod(site):
    big = [build_pod(f"big-{rank}", group="big") for rank in range(10)]
    site.add_gang(big, "big")
    assert site.filter(big[0]) == site.names
    assert site.filter(build_pod("alone")) == site.names


def test_filter_returns_nodes_that_the_cache_does_not_contain(site):
    assert site.filter(build_pod("alone"), [*A, "brand-new"]) == [*A, "brand-new"]


PREFERRED = {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
PREFERENCES = {
    "a preferred node affinity": {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERRED]}}
    },
    "a soft topology spread": extending.PREFERRING,
}


@pytest.mark.parametrize("spec", PREFERENCES.values(), ids=PREFERENCES)
def test_filter_returns_all_nodes_for_a_pod_with_preferences_of_its_author(site, spec):
    assert site.filter(site.peers[0], **spec) == site.names


@pytest.mark.parametrize(("avoided", "left"), [(2, A), (3, [*A, *B])])
def test_filter_returns_all_nodes_if_each_node_of_the_leaf_has_a_prefer_no_schedule_taint(avoided, left):
    taints = [{"key": "k", "effect": "PreferNoSchedule"}]
    site = Site(
        [
            *(build_node(name, "a", taints=taints if number < avoided else []) for number, name in enumerate(A)),
            *(build_node(name, "b") for name in B),
        ]
    )
    assert site.filter(site.peers[0]) == left


def test_filter_returns_all_nodes_once_if_a_pod_is_tried_again(site):
    left = [site.filter(site.peers[0]) for _ in range(4)]
    assert left == [A, site.names, A, site.names]


# --- where a pod counts ---------------------------------------------------------------------------------------


def filter_and_prioritize(site, rank, names=None):
    """Send kube-scheduler's requests for a pod. Return the node with the highest score, the first of equal ones."""
    left = site.filter(site.peers[rank], names)
    if len(left) == 1:
        return left[0]
    scores = site.score(site.peers[rank], left)
    return min(scores, key=lambda name: (-scores[name], name))


def test_one_of_equal_nodes_scores_higher_and_the_pod_is_assumed_there(site):
    scores = site.score(site.peers[0], site.filter(site.peers[0]))
    assert sorted(scores.values()) == [9, 9, 10]
    assert site.list_counted() == {"w-0": max(scores, key=scores.__getitem__)}
    assert [entry.state for entry in site.state.assumed] == [assumed_pods.State.SCORED]


def test_scored_pods_of_a_gang_count_as_placed_before_the_watch_shows_their_binding(site):
    free, taken = list(site.names), []
    for rank in range(3):
        taken.append(filter_and_prioritize(site, rank, free))
        free.remove(taken[-1])
    assert sorted(taken) == A


def test_a_single_pod_is_assumed_on_a_node_that_is_better_than_all_others(site):
    single = build_pod("single")
    site.score(single, A[:1])
    assert site.list_counted() == {}, "the watch has not shown it"
    site.pods.upsert(single)
    site.score(single)
    assert site.list_counted() == {}
    site.score(single, A[:1])
    assert site.list_counted() == {"single": A[0]}


def test_a_pod_is_assumed_on_the_only_node_that_filter_returns(site):
    site.filter(site.peers[0], [A[0], *B])
    assert site.list_counted() == {"w-0": A[0]}


def test_a_scored_pod_is_assumed_on_its_node_for_two_seconds(site):
    node = filter_and_prioritize(site, 0)
    site.now += decider.SCORED_SECONDS
    site.verbs.decider.scored.forget(site.now)
    assert site.list_counted() == {"w-0": node}
    site.now += 0.1
    site.verbs.decider.scored.forget(site.now)
    assert site.list_counted() == {}


def test_a_scored_pod_is_assumed_until_its_node_is_offered_to_another_request(site):
    node = filter_and_prioritize(site, 0)
    site.filter(build_pod("other"), [name for name in site.names if name != node])
    assert "w-0" in site.list_counted()
    site.filter(build_pod("other"))
    assert "w-0" not in site.list_counted()


@pytest.mark.parametrize("on", ["", "a-00"])
def test_a_scored_pod_is_no_longer_assumed_once_the_watch_shows_it_bound_or_deleted(site, on):
    filter_and_prioritize(site, 0)
    site.pods.upsert(build_pod("w-0", group="g", on=on)) if on else site.pods.remove(site.peers[0])
    assert site.list_counted() == {}


def test_the_node_that_volcano_announced_takes_precedence_over_the_one_assumed_from_a_score(site):
    """The pod has changed from one scheduler to the other, in both directions."""
    filter_and_prioritize(site, 0)
    assert site.allocate(site.peers[0], B[0]) == ""
    site.filter(site.peers[1])
    assert site.list_counted() == {"w-0": B[0]}
    site.score(site.peers[0])
    assert site.list_counted()["w-0"] == B[0]
