"""Gangs that Volcano tries in one HyperNode after the other: the plan stays inside the HyperNode."""

import random

import msgspec
import placing
import pytest
from wording import text

from railwright.fabric import views
from railwright.fabric.placement import scheduling_request

GANG = views.PodGroup(
    metadata=views.ObjectMeta(namespace="train", name="gang"),
    spec=views.PodGroupSpec(min_member=1, network_topology=views.NetworkTopology("hard")),
)


class Trial:
    """A gang that is tried in domains, as Volcano's allocate does: each pod takes the best node that is offered."""

    def __init__(self, sizes, pods, busy=()):
        self.nodes = [
            placing.node(f"{spine}-{leaf}-{number:03}", f"{spine}{leaf}", spine)
            for (spine, leaf), size in sizes.items()
            for number in range(size)
        ]
        held = [placing.pod(f"held-{name}", on=name) for name in busy]
        self.cluster = placing.build_cluster(self.nodes, [*pods, *held])
        self.cluster.upsert_pod_group(GANG)
        self.assumed = placing.create_assumed_pods()
        self.engine = placing.RememberingEngine(self.cluster, self.assumed)
        self.pods = list(pods)

    def list_free(self, domain):
        """Return the free nodes of a spine or leaf."""
        taken = {pod.node for pod in self.assumed} | {pod.node for pod in self.cluster.pods.values() if pod.node}
        names = [node.metadata.name for node in self.nodes]
        return [name for name in names if name.startswith(f"{domain}-") and name not in taken]

    def decide(self, pod, offered, *, is_confined=True):
        request = placing.build_request(pod, offered)
        offers = {name: scheduling_request.NodeOffer(idle=self.cluster.get_free(name)) for name in offered}
        return self.engine.score(msgspec.structs.replace(request, offers=offers, is_confined=is_confined))

    def run(self, domain, pods=None):
        """Place the pods in a domain; return (decision, node) of each."""
        placed = []
        for pod in self.pods if pods is None else pods:
            offered = self.list_free(domain)
            if not offered:
                break
            decision = self.decide(pod, offered)
            node = max(offered, key=decision.scores.__getitem__)
            self.assumed.assume(placing.build_assumed_pod(pod, node))
            placed.append((decision, node))
        return placed

    def discard(self):
        for pod in list(self.assumed):
            self.assumed.forget(pod.uid)


def build_pods(size):
    return [placing.pod(f"job-worker-{rank}", group="gang") for rank in range(size)]


def draw(seed):
    """Return leaves of two spines, one with more nodes than Volcano offers without a sample, and some busy nodes."""
    draws = random.Random(seed)  # noqa: S311 - the same in each run
    most = 60 if seed % 3 == 0 else 8
    sizes = {(spine, leaf): draws.randint(1, most) for spine in ("s0", "s1") for leaf in ("a", "b", "c")}
    names = [f"{spine}-{leaf}-{number:03}" for (spine, leaf), size in sizes.items() for number in range(size)]
    return draws, sizes, draws.sample(names, len(names) // 4)


@pytest.mark.parametrize("seed", range(12))
def test_plan_and_reservation_have_only_leaves_of_the_tried_domain(seed):
    draws, sizes, busy = draw(seed)
    size = draws.randint(2, 9)
    trial = Trial(sizes, build_pods(size), busy)
    domains = [*(f"{spine}-{leaf}" for spine, leaf in sizes), "s0", "s1"]
    for domain in draws.sample(domains, len(domains)):
        free = trial.list_free(domain)
        leaves = {(f"{spine}{leaf}", spine) for spine, leaf in sizes if f"{spine}-{leaf}".startswith(domain)}
        placed = trial.run(domain)
        assert len(placed) == min(size, len(free))
        for decision, _ in placed:
            assert set(decision.plan.leaves) <= leaves
            for memory in decision.memory.gangs.values():
                assert set(memory.reserved) <= leaves
        if len(free) >= size:
            assert placed[0][0].plan.is_complete
            used = {node.rpartition("-")[0] for _, node in placed}
            assert len(used) == len(placed[0][0].plan.leaves), "the pods follow the plan"
        trial.discard()


@pytest.mark.parametrize(("is_confined", "spine"), [(True, "s0"), (False, "s1")])
def test_only_a_gang_without_a_constraint_reserves_nodes_that_are_not_offered(is_confined, spine):
    """A long offer may be a sample of all nodes: leaf b is the tightest that holds the gang."""
    trial = Trial({("s0", "a"): 120, ("s1", "b"): 110}, build_pods(105))
    decision = trial.decide(trial.pods[0], trial.list_free("s0"), is_confined=is_confined)
    [memory] = decision.memory.gangs.values()
    assert {spine for _, spine in memory.reserved} == {spine}


def test_the_reason_says_that_the_offered_nodes_are_too_few():
    trial = Trial({("s0", "a"): 3, ("s0", "b"): 3}, build_pods(4))
    [(decision, _)] = trial.run("s0-a", trial.pods[:1])
    [why] = decision.diagnose().why
    assert text(why) == "4 pods remain; the offered nodes have slots for 3; the scheduler offers no node of s0b in s0"
    assert decision.diagnose().fits


# --- parts of a gang ------------------------------------------------------------------------------------------


def build_parts(size, per_part):
    labels = [
        {"volcano.sh/task-spec": "worker", "volcano.sh/partition-id": str(rank // per_part)} for rank in range(size)
    ]
    return [
        msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, labels_or_none={**pod.metadata.labels, **own})
        )
        for pod, own in zip(build_pods(size), labels, strict=True)
    ]


def test_a_part_is_planned_alone_where_the_whole_gang_does_not_fit():
    trial = Trial({("s0", "a"): 4, ("s0", "b"): 4}, build_parts(8, 4))
    first, last = trial.run("s0-a", trial.pods[:4]), trial.run("s0-b", trial.pods[4:])
    assert {decision.part for decision, _ in first} == {"worker/0"}
    assert {decision.part for decision, _ in last} == {""}, "the rest of the gang is one part"
    for placed in (first, last):
        assert all(decision.plan.is_complete for decision, _ in placed)
        assert [decision.gang.remaining for decision, _ in placed] == [4, 3, 2, 1]


def test_the_whole_gang_is_planned_where_it_fits():
    trial = Trial({("s0", "a"): 5, ("s0", "b"): 8}, build_parts(8, 4))
    placed = trial.run("s0")
    assert {decision.part for decision, _ in placed} == {""}
    assert {node.rpartition("-")[0] for _, node in placed} == {"s0-b"}
