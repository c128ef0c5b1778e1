"""Gangs that kube-scheduler 1.37 places as PodGroups, in cycles that it may simulate, with a model of these cycles.

The extender knows nothing of these cycles.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import extending
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import change_pod, node, pod

from railwright.fabric import resources, views
from railwright.fabric.workloads import pod_groups

LOW, HIGH = 100, 1000


class Cluster(extending.Site):
    """Nodes in leaves, pods, and the extender for kube-scheduler."""

    def __init__(self, **leaves: int) -> None:
        self.shown: dict[str, views.Pod] = {}
        self.nodes = {f"{leaf}-{number:02}": leaf for leaf, size in leaves.items() for number in range(size)}
        super().__init__([node(name, leaf) for name, leaf in self.nodes.items()])

    def create(self, name: str, size: int, **kinds) -> list[views.Pod]:
        """Create the pods of a PodGroup, and the PodGroup."""
        spec = {"schedulingGroup": {"podGroupName": name}}
        peers = [pod(f"{name}-{rank}", **spec, **kinds) for rank in range(size)]
        for peer in peers:
            self.show(peer)
        gang = {"schedulingPolicy": {"gang": {"minCount": size}}}
        group = msgspec.convert({"metadata": {"name": name, "namespace": "train"}, "spec": gang}, views.PodGroup)
        self.state.cluster.upsert_size(pod_groups.POD_GROUPS, group)
        return peers

    def show(self, shown: views.Pod, on: str = "") -> None:
        """Show a pod to the extender's watch, as it is or bound."""
        changed = change_pod(shown, spec={"node_name": on or shown.spec.node_name})
        self.shown[shown.metadata.name] = changed
        self.pods.upsert(changed)

    def fill(self) -> None:
        """Bind a pod of low priority to each node."""
        for peer, on in zip(self.create("low", len(self.nodes), priority=LOW), self.nodes, strict=True):
            self.show(peer, on)
        self.now += 10

    def leaves_of(self, places: Mapping[str, str] | None) -> dict[str, int]:
        return dict(Counter(self.nodes[on] for on in (places or {}).values()))


class KubeScheduler:
    """The cycle of kube-scheduler 1.37 for a PodGroup (schedule_one_podgroup.go, podgrouppreemption.go).

    It counts all pods that it has bound itself. Of equal nodes it takes one at random, here the last.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.assumed: dict[str, tuple[str, views.Pod]] = {}  # pods whose binding is on its way

    def run(self, peers: Sequence[views.Pod], *, domains: Sequence[str] = ()) -> dict[str, str] | None:
        """Run a cycle; return the places of all pods, or None. With `domains`, simulate each; the first that fits."""
        chosen = None
        for domain in domains or ("",):
            places = self.simulate(peers, [n for n, leaf in self.cluster.nodes.items() if domain in ("", leaf)])
            chosen = chosen or places
        for peer in peers if chosen else ():
            self.assumed[peer.metadata.name] = (chosen or {})[peer.metadata.name], peer
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
            requests = resources.compute_requests(peer.spec)
            offered = [name for name in names if all(free[name][key] >= value for key, value in requests.items())]
            if not offered:
                return None
            places[peer.metadata.name] = best = self._ask(peer, offered)
            free[best].subtract(requests)
        return places

    def bind(self) -> None:
        """Show the extender the bindings that are on their way."""
        for on, peer in self.assumed.values():
            self.cluster.show(peer, on)
        self.assumed.clear()

    def _ask(self, peer, offered) -> str:
        self.cluster.now += 0.01
        left = self.cluster.filter(peer, offered)
        assert left, "a node that kube-scheduler offers has room"
        if len(left) == 1:
            return left[0]
        scores = self.cluster.score(peer, left)
        return max(left, key=lambda name: (scores[name], name))

    def _count_free(self, name: str, removed: Sequence[str]) -> Counter[str]:
        free = Counter(self.cluster.state.cluster.nodes[name].allocatable)
        bound = [known for key, known in self.cluster.shown.items() if key not in removed]
        on_node = [known for known in bound if known.spec.node_name == name]
        on_node += [peer for on, peer in self.assumed.values() if on == name]
        for known in on_node:
            free.subtract(resources.compute_requests(known.spec))
        return free


DOMAINS = [(), ("few", "right", "many"), ("many", "right", "few")]


@pytest.mark.parametrize("domains", DOMAINS)
def test_a_gang_runs_and_without_a_key_it_gets_the_tightest_leaf(domains):
    cluster = Cluster(few=4, right=8, many=11)
    places = KubeScheduler(cluster).run(cluster.create("train", 8), domains=domains)
    leaf = next((domain for domain in domains if domain != "few"), "right")
    assert cluster.leaves_of(places) == {leaf: 8}


@pytest.mark.parametrize("is_seen", [True, False], ids=["bindings are seen", "bindings are not seen"])
def test_two_gangs_one_after_the_other_get_a_leaf_each(is_seen):
    cluster = Cluster(a=6, b=6, c=2)
    scheduler = KubeScheduler(cluster)
    first, second = (cluster.create(name, 6) for name in ("first", "second"))
    leaves = []
    for peers in (first, second):
        leaves.append(cluster.leaves_of(scheduler.run(peers)))
        if is_seen:
            scheduler.bind()
    assert sorted(leaf for used in leaves for leaf in used) == ["a", "b"]


@pytest.mark.parametrize("pause", [0, 1, 6])
@pytest.mark.parametrize("domains", [(), ("few", "many", "right")])
def test_the_next_gang_gets_its_leaf_after_one_that_fits_nowhere(pause, domains):
    cluster = Cluster(few=4, right=8, many=11)
    scheduler = KubeScheduler(cluster)
    assert scheduler.run(cluster.create("big", 12 if domains else 24), domains=domains) is None
    cluster.now += pause
    assert cluster.leaves_of(scheduler.run(cluster.create("next", 8))) == {"right": 8}


@pytest.mark.parametrize("free", [0, 2])
def test_a_gang_of_higher_priority_preempts_as_many_pods_as_it_needs(free):
    cluster = Cluster(a=4, b=4)
    cluster.fill()
    for number in range(free):
        cluster.pods.remove(cluster.shown.pop(f"low-{number}"))
    scheduler, peers = KubeScheduler(cluster), cluster.create("high", 4, priority=HIGH)
    assert scheduler.run(peers) is None
    places, victims = scheduler.preempt(peers)
    assert places is not None
    assert 4 - free <= len(victims) <= 4
    for name in victims:
        cluster.pods.remove(cluster.shown.pop(name))
    for peer in peers:  # kube-scheduler tries the nominated node first
        assert cluster.filter(peer, [places[peer.metadata.name]]) == [places[peer.metadata.name]]


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    gangs=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    is_seen=st.booleans(),
)
def test_gangs_run_whenever_kube_scheduler_has_room_for_them(sizes, gangs, is_seen):
    cluster = Cluster(**{f"l{number}": size for number, size in enumerate(sizes)})
    scheduler, left = KubeScheduler(cluster), sum(sizes)
    for number, size in enumerate(gangs):
        places = scheduler.run(cluster.create(f"gang{number}", size))
        assert (places is not None) == (size <= left)
        left -= size if places else 0
        if is_seen:
            scheduler.bind()
