"""Gangs that kube-scheduler 1.37 places as PodGroups, in cycles that it may simulate, with a model of these cycles."""

from collections import Counter
from collections.abc import Mapping, Sequence

import claimed
import devices
import extending
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import RESOURCES, build_assumed_pod, build_request, change_pod, node, pod

from extender import state
from railwright.fabric import resources, views
from railwright.fabric.placement import engine
from railwright.fabric.placement.gangs import gang_memory, planner
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import pod_groups

LOW, HIGH = 100, 1000


class Cluster(extending.Site):
    """Nodes in leaves, pods, and the extender for kube-scheduler."""

    def __init__(self, **leaves: int) -> None:
        self.shown: dict[str, views.Pod] = {}
        self.rejected: Counter[str] = Counter()
        self.nodes = {f"{leaf}-{number:02}": leaf for leaf, size in leaves.items() for number in range(size)}
        super().__init__(
            [node(name, leaf) for name, leaf in self.nodes.items()],
            count_rejected=lambda code, count: self.rejected.update({code: count}),
        )

    def create(self, name: str, size: int, *, minimum: int | None = None, **kinds) -> list[views.Pod]:
        """Create the pods of a PodGroup, and the PodGroup."""
        peers = [build_pod(f"{name}-{rank}", group=name, **kinds) for rank in range(size)]
        for peer in peers:
            self.show(peer)
        gang = {"schedulingPolicy": {"gang": {"minCount": minimum or size}}}
        group = msgspec.convert({"metadata": {"name": name, "namespace": "train"}, "spec": gang}, views.PodGroup)
        self.state.cluster.upsert_size(pod_groups.POD_GROUPS, group)
        return peers

    def show(self, shown: views.Pod, on: str = "") -> None:
        """Show a pod to the extender's watch, as it is or bound."""
        changed = change_pod(shown, spec={"node_name": on or shown.spec.node_name})
        self.shown[shown.metadata.name] = changed
        self.pods.upsert(changed)

    def delete(self, name: str) -> None:
        self.pods.remove(self.shown.pop(name))

    def fill(self, name: str = "low", **kinds) -> None:
        """Bind a pod of a PodGroup to each node."""
        for peer, on in zip(self.create(name, len(self.nodes), **kinds), self.nodes, strict=True):
            self.show(peer, on)
        self.now += 10

    def count_unseen(self) -> Mapping[str, resources.Amounts]:
        """Return the devices that Volcano does not get because of unseen pods, by node."""
        return self.verbs.decider.unseen.sum_requests(self.state.cluster, self.now, except_uid="")

    def leaves_of(self, places: Mapping[str, str] | None) -> dict[str, int]:
        return dict(Counter(self.nodes[on] for on in (places or {}).values()))


def build_pod(name: str, *, group: str = "", scheduler: str = "default-scheduler", **kinds) -> views.Pod:
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return pod(name, schedulerName=scheduler, **spec, **kinds)


class KubeScheduler:
    """The cycle of kube-scheduler 1.37 for a PodGroup (schedule_one_podgroup.go, podgrouppreemption.go).

    `ignored` are the resources that it does not count. It knows all bound pods, except those that are `unknown` to it.
    """

    def __init__(self, cluster: Cluster, *, ignored: Sequence[str] = (), unknown: Sequence[str] = ()) -> None:
        self.cluster, self.ignored, self.unknown = cluster, ignored, unknown

    def run(self, peers: Sequence[views.Pod], *, domains: Sequence[str] = ()) -> dict[str, str] | None:
        """Run a cycle; return the places of all pods, or None. With `domains`, simulate each; the first that fits."""
        chosen = None
        for domain in domains or ("",):
            places = self.simulate(peers, [n for n, leaf in self.cluster.nodes.items() if domain in ("", leaf)])
            chosen = chosen or places
        return chosen

    def preempt(self, peers: Sequence[views.Pod]) -> tuple[dict[str, str] | None, list[str]]:
        """Simulate without the pods of lower priority; return the places, and the names of the victims."""
        priority = peers[0].spec.priority or 0
        removed = [name for name, known in self.cluster.shown.items() if (known.spec.priority or 0) < priority]
        places = self.simulate(peers, list(self.cluster.nodes), removed=removed)
        on = {self.cluster.shown[name].spec.node_name: name for name in removed}
        return places, [on[name] for name in (places or {}).values() if name in on]

    def simulate(self, peers, names, *, removed: Sequence[str] = ()) -> dict[str, str] | None:
        free = {name: self._count_free(name, removed) for name in names}
        places: dict[str, str] = {}
        for peer in peers:
            requests = self._count(peer)
            offered = [name for name in names if all(free[name][key] >= value for key, value in requests.items())]
            best = self._ask(peer, offered) if offered else ""
            if not best:
                return None
            places[peer.metadata.name] = best
            free[best].subtract(requests)
        return places

    def bind(self, places: Mapping[str, str]) -> None:
        for name, on in places.items():
            self.cluster.show(self.cluster.shown[name], on)

    def filter(self, peer: views.Pod, offered: Sequence[str]) -> list[str]:
        self.cluster.now += 0.01
        return self.cluster.filter(peer, offered)

    def _ask(self, peer, offered) -> str:
        feasible = self.filter(peer, offered)
        if len(feasible) < 2:
            return "".join(feasible)
        scores = self.cluster.score(peer, feasible)
        return min(scores, key=lambda name: (-scores[name], name))

    def _count_free(self, name: str, removed: Sequence[str]) -> Counter[str]:
        free = Counter(self.cluster.state.cluster.nodes[name].allocatable)
        for key, known in self.cluster.shown.items():
            if known.spec.node_name == name and key not in removed and key not in self.unknown:
                free.subtract(self._count(known))
        return free

    def _count(self, counted: views.Pod) -> dict[str, int]:
        requests = resources.compute_requests(counted.spec)
        return {name: amount for name, amount in requests.items() if name not in self.ignored}


# --- preemption -----------------------------------------------------------------------------------------------


def show_alone(cluster: Cluster, priority: int, **status: str) -> views.Pod:
    """Return a pod without a gang, which kube-scheduler may have nominated for a node."""
    urgent = change_pod(build_pod("urgent", priority=priority), status=status)
    cluster.show(urgent)
    return urgent


REFUSED = {  # a pod that finds a pod of priority LOW on each node
    "of the same priority": lambda cluster: cluster.create("other", 1, priority=LOW)[0],
    "of a lower priority": lambda cluster: cluster.create("other", 1, priority=LOW - 1)[0],
    "of a PodGroup that never preempts": lambda cluster: cluster.create(
        "other", 1, priority=HIGH, preemptionPolicy="Never"
    )[0],
    # kube-scheduler asks no extender while it looks for the victims of a pod alone
    "without a PodGroup": lambda cluster: show_alone(cluster, HIGH),
    "nominated, of the same priority": lambda cluster: show_alone(cluster, LOW, nominated_node_name="a-02"),
    "nominated, of a lower priority": lambda cluster: show_alone(cluster, LOW - 1, nominated_node_name="a-02"),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED)
def test_pods_that_may_evict_nobody_are_refused_where_devices_are_busy(build):
    cluster = Cluster(a=4)
    cluster.fill(priority=LOW)
    assert KubeScheduler(cluster).filter(build(cluster), list(cluster.nodes)) == []
    assert set(cluster.rejected) == {Code.RAIL_BUSY}


def test_a_nominated_node_is_refused_if_only_rails_are_busy_that_kube_scheduler_may_not_count():
    cluster = Cluster(a=1)
    cluster.fill(priority=LOW, gpus=0)
    urgent = show_alone(cluster, HIGH, nominated_node_name="a-00")
    assert KubeScheduler(cluster).filter(urgent, ["a-00"]) == []


def test_devices_of_higher_priority_stay_busy_on_a_node_with_victims():
    cluster = Cluster(a=2)
    for number, priority in enumerate((LOW, HIGH)):
        cluster.show(build_pod(f"half-{number}", gpus=4, rails=number, priority=priority, on="a-00"))
    cluster.fill("rest", priority=LOW, gpus=0, rails=0)
    cluster.now += 10
    (peer,) = cluster.create("urgent", 1, priority=LOW + 1)
    assert KubeScheduler(cluster).filter(peer, ["a-00"]) == [], "the rails are those of the pod of high priority"


def test_a_pod_without_a_gang_gets_the_node_of_its_victim_before_the_watch_shows_the_deletion():
    """kube-scheduler would evict a second victim if its nominated node were refused."""
    cluster = Cluster(a=4)
    cluster.fill(priority=LOW)
    scheduler, urgent = KubeScheduler(cluster), show_alone(cluster, HIGH, nominated_node_name="a-02")
    assert scheduler.filter(urgent, ["a-02"]) == ["a-02"]
    assert scheduler._ask(urgent, ["a-02"]) == "a-02"
    assert not cluster.rejected


def test_a_pod_with_victims_on_two_nodes_may_use_either():
    """kube-scheduler may evict a second pod before its cache shows the first one's end, and then offers the first node.

    The pod is nominated for the second.
    """
    cluster = Cluster(a=4)
    cluster.fill(priority=LOW)
    urgent = show_alone(cluster, HIGH, nominated_node_name="a-02")
    assert KubeScheduler(cluster).filter(urgent, ["a-00"]) == ["a-00"]


def test_a_nominated_node_is_refused_where_another_scheduler_has_just_bound_a_pod():
    cluster = Cluster(a=1)
    urgent = show_alone(cluster, HIGH, nominated_node_name="a-00")
    cluster.show(build_pod("low", priority=LOW, scheduler="volcano"), "a-00")
    assert KubeScheduler(cluster).filter(urgent, ["a-00"]) == []


def test_a_node_to_which_another_scheduler_has_just_bound_a_pod_is_refused():
    cluster = Cluster(a=1)
    low = build_pod("low", priority=LOW, scheduler="volcano")
    cluster.show(low, "a-00")
    (peer,) = cluster.create("high", 1, priority=HIGH)
    scheduler = KubeScheduler(cluster, unknown=["low"])
    assert scheduler.run([peer]) is None, "kube-scheduler does not know that the node is full"
    cluster.now += 2
    assert KubeScheduler(cluster).preempt([peer])[0] == {"high-0": "a-00"}


def test_peers_share_no_node_while_their_victims_are_there():
    """Peers count on the nodes that are missing for the next: the plan has one slot less each time."""
    cluster = Cluster(few=3, right=6, many=7)
    cluster.fill(priority=LOW)
    peers = cluster.create("high", 6, priority=HIGH)
    places, _ = KubeScheduler(cluster).preempt(peers)
    assert cluster.leaves_of(places) == {"right": 6}
    explanation = cluster.verbs.decider.explanations.explain("train", "high-4")
    assert explanation.remaining == 2
    assert explanation.bandwidth == 1.0, "nobody shares the NICs of peers that wait for their victims"


def test_free_nodes_and_nodes_with_victims_are_planned_together():
    cluster = Cluster(a=4, b=4)
    cluster.fill(priority=LOW)
    for name in ("low-4", "low-5"):
        cluster.delete(name)
    scheduler, peers = KubeScheduler(cluster), cluster.create("high", 4, priority=HIGH)
    assert scheduler.run(peers) is None
    places, victims = scheduler.preempt(peers)
    assert sorted(cluster.leaves_of(places).values()) == [4]
    assert set(victims) <= {f"low-{number}" for number in range(8)}


def test_devices_of_claims_stay_allocated_while_a_removal_is_simulated():
    known = state.State(assume_seconds=30)
    known.cluster.upsert_node(claimed.build_node("n1"))
    claimed.name_devices(known.cluster)
    claimed.add_slices(known.cluster, "n1")
    claim = claimed.build_claim("low-claim", (0, 1), gpus=2, pod_uid="uid-low", on="n1", entry="railwright")
    known.cluster.upsert_claim(devices.read_claim(claim))
    known.cluster.upsert_pod(claimed.build_pod("low", templates=("t",), on="n1"))
    assert known.cluster.pods["uid-low"].requests[claimed.RAIL[0]] == resources.UNIT
    removable = pod_usage.count_removable(known.cluster, "n1", known.cluster.list_below("n1", HIGH))
    assert removable == {resources.PODS: resources.UNIT, "cpu": resources.UNIT}


# --- what is inferred of simulations --------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0, 2, 6])
def test_the_next_gang_gets_its_leaf_after_one_that_fits_nowhere(pause):
    cluster = Cluster(few=4, right=8, many=11)
    scheduler = KubeScheduler(cluster)
    assert scheduler.run(cluster.create("big", 24)) is None
    cluster.now += pause
    assert cluster.leaves_of(scheduler.run(cluster.create("next", 8))) == {"right": 8}


@pytest.mark.parametrize("last", ["few", "right", "many"])
def test_after_a_gang_that_fits_no_domain_the_next_one_gets_its_leaf(last):
    cluster = Cluster(few=4, right=8, many=11)
    scheduler = KubeScheduler(cluster)
    domains = [*(leaf for leaf in ("few", "right", "many") if leaf != last), last]
    assert scheduler.run(cluster.create("big", 12), domains=domains) is None
    assert cluster.leaves_of(scheduler.run(cluster.create("next", 8))) == {"right": 8}


def test_another_scheduler_is_not_misled_by_a_gang_that_fits_nowhere():
    cluster = Cluster(few=4, right=8, many=11)
    assert KubeScheduler(cluster).run(cluster.create("big", 24)) is None
    assert not cluster.count_unseen(), "nor is Volcano refused these nodes"
    peers = cluster.create("next", 8, scheduler="second")
    assert cluster.leaves_of(KubeScheduler(cluster).run(peers)) == {"right": 8}


def test_pods_of_one_scheduler_stay_when_another_offers_their_node():
    cluster = Cluster(a=3, b=8)
    first, second = cluster.create("first", 2), cluster.create("second", 2, scheduler="second")
    scheduler = KubeScheduler(cluster)
    names = list(cluster.nodes)
    scheduler._ask(first[0], names)
    taken = scheduler._ask(first[0], names)
    left = [name for name in names if name != taken]
    scheduler.filter(first[1], left)
    assert taken in cluster.count_unseen()
    scheduler.filter(second[0], names)
    assert taken in cluster.count_unseen(), "the second scheduler does not know the first one's pod"
    scheduler.filter(first[1], names)
    assert taken not in cluster.count_unseen()


# --- rails that kube-scheduler does not count ------------------------------------------------------------------


def count_overbooked(cluster: Cluster) -> int:
    used = Counter(known.spec.node_name for known in cluster.shown.values() if known.spec.node_name)
    return sum(number > 1 for number in used.values())


@pytest.mark.parametrize("minimum", [4, 1])
def test_pods_of_a_pod_group_never_share_rails_that_kube_scheduler_does_not_count(minimum):
    cluster = Cluster(a=4)
    scheduler = KubeScheduler(cluster, ignored=RESOURCES)
    peers = cluster.create("train", 4, minimum=minimum, gpus=2)
    for _ in range(3):
        assert scheduler.run(peers) is None
        cluster.now += 3
    assert cluster.rejected[Code.RAILS_UNCOUNTED] > 0
    assert count_overbooked(cluster) == 0
    cluster.now += 10
    places = KubeScheduler(cluster).run(peers)
    assert places, "the setting was corrected"
    assert len(set(places.values())) == 4


def test_a_shortage_of_uncounted_rails_does_not_indicate_a_simulation():
    cluster = Cluster(a=4)
    cluster.fill(priority=LOW, gpus=2)
    scheduler = KubeScheduler(cluster, ignored=RESOURCES)
    (peer,) = cluster.create("high", 1, priority=HIGH, gpus=2)
    assert scheduler.run([peer]) is None
    assert set(cluster.rejected) == {Code.RAIL_BUSY}


def test_a_node_full_without_pods_of_lower_priority_is_refused():
    """kube-scheduler has seen the end of a pod that the extender still sees there."""
    cluster = Cluster(a=2)
    cluster.show(build_pod("ended", priority=HIGH), "a-00")
    cluster.show(build_pod("low", priority=LOW, gpus=2), "a-01")
    cluster.now += 10
    scheduler = KubeScheduler(cluster, ignored=RESOURCES, unknown=["ended"])
    (peer,) = cluster.create("high", 1, priority=HIGH, gpus=2)
    assert scheduler.run([peer]) is None


def test_a_scheduler_that_counts_rails_is_believed_to_need_victims_for_them():
    cluster = Cluster(a=4)
    scheduler = KubeScheduler(cluster)
    places = scheduler.run(cluster.create("low", 4, priority=LOW, gpus=2))
    scheduler.bind(places)
    cluster.now += 60
    peers = cluster.create("high", 4, priority=HIGH, gpus=2)
    assert scheduler.run(peers) is None
    places, victims = scheduler.preempt(peers)
    assert places
    assert len(victims) == 4


def test_a_node_without_gpus_shows_that_pods_were_removed_from_all_nodes():
    cluster = Cluster(a=4)
    for number, gpus in enumerate((8, 2, 2, 2)):
        cluster.show(build_pod(f"low-{number}", priority=LOW, gpus=gpus, on=f"a-{number:02}"))
    cluster.now += 10
    places, victims = KubeScheduler(cluster).preempt(cluster.create("high", 4, priority=HIGH, gpus=2))
    assert places
    assert len(victims) == 4


# --- one plan for a topology domain ----------------------------------------------------------------------------


def record_plans(monkeypatch) -> list[object]:
    """Return a list to which the input of each plan is added."""
    solve, plans = planner.solve, []
    monkeypatch.setattr(planner, "solve", lambda *inputs: plans.append(inputs) or solve(*inputs))
    return plans


@pytest.mark.parametrize("size", [4, 7], ids=["fits", "fits nowhere"])
def test_a_gang_is_planned_once_in_each_domain(monkeypatch, size):
    plans = record_plans(monkeypatch)
    cluster = Cluster(a=6, b=6)
    places = KubeScheduler(cluster).run(cluster.create("gang", size), domains=["a", "b"])
    assert (places is not None) == (size == 4)
    assert len(plans) == 2


@pytest.mark.parametrize("size", [4, 7], ids=["fits", "fits nowhere"])
@pytest.mark.parametrize("change", ["a pod", "a node", "time"])
def test_a_gang_is_planned_again_after_a_change(monkeypatch, size, change):
    cluster = Cluster(a=6, b=2)
    scheduler, names = KubeScheduler(cluster), list_nodes(cluster, "a")
    scheduler.filter(cluster.create("other", 2)[0], list_nodes(cluster, "b"))  # where it is, is guessed for a time
    peers = cluster.create("gang", size)
    gone = scheduler.filter(peers[0], names)[0]
    match change:
        case "a pod":
            cluster.show(build_pod("bound"), "b-00")
        case "a node":
            cluster.state.cluster.upsert_node(node("b-00", "b", unschedulable=True))
        case _:
            cluster.now += 60
    plans = record_plans(monkeypatch)
    scheduler.filter(peers[1], [name for name in names if name != gone])
    assert plans


def test_a_gang_is_planned_again_if_its_pod_went_to_another_node(monkeypatch):
    cluster = Cluster(a=6)
    scheduler, peers, names = KubeScheduler(cluster), cluster.create("gang", 4), list(cluster.nodes)
    (left,) = scheduler.filter(peers[0], names)
    plans = record_plans(monkeypatch)
    other = next(name for name in names if name != left)
    scheduler.filter(peers[1], [name for name in names if name not in (left, other)])
    assert plans


@pytest.mark.parametrize(
    ("size", "rank", "placed_on"), [(4, 1, "a-00"), (12, 8, "")], ids=["of its pod", "of the rank"]
)
def test_a_gang_is_planned_again_for_another_leaf(size, rank, placed_on):
    cluster = Cluster(a=6, b=4)
    names, peers = list(cluster.nodes), cluster.create("gang", size)
    reusing, fresh = (engine.PlacementEngine(cluster.state.cluster, cluster.state.assumed) for _ in range(2))
    latest = reusing.score(build_request(peers[0], names), gang_memory.PlacementMemory())
    request = build_request(peers[rank], [name for name in names if name != (placed_on or "b-00")])
    inferred = [build_assumed_pod(peers[0], placed_on)] if placed_on else []
    decision, planned = (used.score(request, latest.memory, inferred) for used in (reusing, fresh))
    assert (decision.plan, decision.scores) == (planned.plan, planned.scores)


class ComparedCluster(Cluster):
    """Compares each decision with that of an engine without caches."""

    def __init__(self, **leaves: int) -> None:
        super().__init__(**leaves)
        self._engine = self.verbs.decider._engine
        self._score, self._engine.score = self._engine.score, self.compare

    def compare(self, request, memory, inferred, *, index, classes):
        assert classes is None or list(classes) == [index.class_of_node.get(name) for name in request.nodes]
        decision = self._score(request, memory, inferred, index=index, classes=classes)
        fresh = engine.PlacementEngine(self.state.cluster, self.state.assumed).score(request, memory, inferred)
        assert decision.scores == fresh.scores
        best = max(decision.scores.values())
        assert decision.node_scores.best == best
        best_planned = [name for name in decision.nodes_of_target if decision.scores.get(name, 0.0) == best]
        assert list(decision.list_best_planned(1e-9)) == best_planned
        assert (decision.plan, decision.memory) == (fresh.plan, fresh.memory)
        assert [row.node for row in decision.rows] == [row.node for row in fresh.rows]
        assert decision.gang.remaining == fresh.gang.remaining
        assert decision.gang.peers_by_leaf == fresh.gang.peers_by_leaf
        assert decision.diagnose() == fresh.diagnose()
        return decision


@given(st.data())
def test_each_decision_in_a_domain_is_that_of_a_new_plan(data):
    def draw(options):
        return data.draw(st.sampled_from(options))

    cluster = ComparedCluster(**{leaf: data.draw(st.integers(1, 7)) for leaf in "abc"})
    for name in data.draw(st.sets(st.sampled_from(list(cluster.nodes)), max_size=3)):
        cluster.state.cluster.upsert_node(node(name, cluster.nodes[name], capacity={RESOURCES[0]: "2"}))
    scheduler = KubeScheduler(cluster)
    for gang in range(2):
        amounts = {"gpus": draw([8, 8, 4]), "rails": draw([1, 1, 0])}
        peers = cluster.create(f"gang{gang}", data.draw(st.integers(1, 8)), **amounts)
        for domain in data.draw(st.permutations("abc")):
            free = [name for name in list_nodes(cluster, domain) if not cluster.state.cluster.get_pods_on(name)]
            for peer in peers:
                if not free:
                    break
                left = scheduler.filter(peer, free)
                if len(left) > 1 and draw([True, False]):
                    cluster.score(peer, left)
                free.remove(draw(left) if draw([0, 0, 0, 1]) else left[0])
                if draw([0] * 9 + [1]):
                    cluster.show(build_pod(f"other-{cluster.now}", gpus=4, rails=0), draw(list(cluster.nodes)))
                if draw([0] * 9 + [1]):
                    cluster.now += draw([0.6, 2, 6])


# --- explain ---------------------------------------------------------------------------------------------------


def explain(cluster: Cluster, name: str):
    return cluster.verbs.decider.explain("train", name)


@pytest.mark.parametrize("domains", [("right", "few", "many"), ("few", "many", "right"), ("many", "right", "few")])
def test_explain_describes_the_chosen_domain_and_not_the_one_simulated_last(domains):
    cluster = Cluster(few=4, right=8, many=11)
    scheduler = KubeScheduler(cluster)
    places = {}
    for domain in domains:
        places[domain] = scheduler.simulate(cluster_peers(cluster), list_nodes(cluster, domain))
    scheduler.bind(places["right"])
    (outcome,) = cluster.verbs.decider.gangs.check(cluster.now)
    assert outcome.code == "compact"
    for rank in range(8):
        explanation = explain(cluster, f"train-{rank}")
        assert explanation.outcome == "compact"
        assert explanation.leaves_planned == (["right"] if rank < 7 else []), "no score was requested for the last"
        assert {row["node"].rpartition("-")[0] for row in explanation.nodes} == {"right"}
        assert explanation.placement["outside_plan"] == ()


def cluster_peers(cluster: Cluster) -> Sequence[views.Pod]:
    known = [known for name, known in cluster.shown.items() if name.startswith("train")]
    return known or cluster.create("train", 8)


def list_nodes(cluster: Cluster, domain: str) -> list[str]:
    return [name for name, leaf in cluster.nodes.items() if leaf == domain]


def test_decisions_on_many_domains_are_bounded():
    cluster = Cluster(**{f"leaf{number}": 1 for number in range(9)})
    scheduler, names = KubeScheduler(cluster), list(cluster.nodes)
    (first,) = cluster.create("first", 1)
    scheduler.filter(first, names[:1])
    for gang in range(255):
        (peer,) = cluster.create(f"gang{gang}", 1)
        for name in names if gang < 249 else names[:1]:
            scheduler.filter(peer, [name])
    records = cluster.verbs.decider.explanations._records
    for name in names[1:]:
        scheduler.filter(first, [name])  # on the pod that would be the next to be forgotten
    assert next(reversed(records)) == "train/first-0"
    assert sum(map(len, records.values())) == cluster.verbs.decider.explanations._decisions <= 2000
    assert max(map(len, records.values())) == 8


def test_explain_describes_the_current_cluster_and_not_the_best_earlier_offer():
    cluster = Cluster(a=4, b=2)
    scheduler, peers = KubeScheduler(cluster), cluster.create("big", 5)
    assert scheduler.run(peers, domains=["a", "b"]) is None
    for name in list_nodes(cluster, "a"):
        cluster.show(pod(f"other-{name}"), name)
    cluster.now += 60
    assert scheduler.run(peers, domains=["a", "b"]) is None
    assert explain(cluster, "big-0").why[0].code == Code.CAPACITY_INSUFFICIENT


@pytest.mark.parametrize("offered", [["a-00"], ["a-01"], ["a-02"], ["a-03"]])
def test_a_domain_of_which_other_nodes_are_offered_later_is_explained_once(offered):
    """Of the domain, one node was refused at first, and then one node was left."""
    cluster = Cluster(a=4)
    cluster.state.cluster.upsert_node(node("a-03", "a", rails_each=0))
    scheduler, peers = KubeScheduler(cluster), cluster.create("big", 5)
    for names in (list(cluster.nodes), ["a-01"], offered):
        scheduler.filter(peers[0], names)
    assert len(cluster.verbs.decider.explanations._records["train/big-0"]) == 1


# --- the planned node ------------------------------------------------------------------------------------------


def test_a_pod_is_left_with_one_node_of_each_domain_once():
    cluster = Cluster(a=3, b=4)
    scheduler, (peer, *_) = KubeScheduler(cluster), cluster.create("train", 3)
    domains = [list_nodes(cluster, domain) for domain in "ab"]
    assert [len(scheduler.filter(peer, domain)) for domain in (*domains, *domains)] == [1, 1, 3, 4]


def test_all_nodes_are_left_while_victims_are_sought():
    cluster = Cluster(a=3, b=4)
    cluster.fill(priority=LOW)
    peer, *_ = cluster.create("train", 3, priority=HIGH)
    assert KubeScheduler(cluster).filter(peer, list(cluster.nodes)) == list(cluster.nodes)
