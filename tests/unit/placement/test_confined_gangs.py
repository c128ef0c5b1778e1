"""Gangs that need a domain: segments in NVLink domains, and HyperNodes that Volcano tries one by one."""

import itertools
import random
from unittest import mock

import msgspec
import placing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import LEAF, build_leaves, build_node, build_pod, build_request
from scheduling_loop import Loop, gang

from railwright.fabric import views
from railwright.fabric.placement.gangs import planner, rank_order, segments
from railwright.fabric.workloads import membership, volcano

LEAVES = tuple((name, "s") for name in "abcd")


def build_policy(segment=None):
    return placing.change_fabric(placing.build_policy(), nvlink_segment=segment)


class FilteringLoop(Loop):
    """Calls the extender's filter before the scores, as schedulers do. A pod without a node waits."""

    has_plan = True  # for the whole gang, at each decision

    def decide(self, pod):
        decision = super().decide(pod)
        self.has_plan = self.has_plan and decision.plan.is_complete and decision.target_leaf is not None
        return decision

    def find_refusals(self, waiting):
        """Return the reasons of refused nodes with room, by node."""
        refusals = self.engine.find_refusals(build_request(waiting, super().feasible(waiting), self.policy))
        return {node: refusal.text for node, refusal in refusals.items()}

    def feasible(self, pod):
        refused = self.find_refusals(pod)
        return [name for name in super().feasible(pod) if name not in refused]

    def place_fitting(self, pods, domain=LEAF):
        """Place the pods that fit, in this order. Return the domain of each by name."""
        nodes = {pod.metadata.name: self.place([pod])[0] for pod in pods if self.feasible(pod)}
        return {name: self.state.nodes[node].labels[domain] for name, node in nodes.items()}


def count_fewest(sizes, segments):
    """Return the smallest number of leaves that hold segments of these sizes; None if all leaves do not."""
    for count in range(1, len(sizes) + 1):
        if any(holds(list(some), sorted(segments)) for some in itertools.combinations(sizes, count)):
            return count
    return None


def holds(free, segments):
    if not segments:
        return True
    *others, largest = segments
    return any(
        slots >= largest and holds([*free[:at], slots - largest, *free[at + 1 :]], others)
        for at, slots in enumerate(free)
    )


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(2, 4),
    st.integers(2, 12),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_segments_stay_in_one_domain_and_their_gang_uses_the_fewest_domains(sizes, size, count, random, announces):
    """The last segment may be smaller. A gang has a plan then, if its ranks come in order.

    Only a scheduler that starts a gang as a whole avoids nodes that cannot hold it.
    """
    nodes = build_leaves(**{f"a{number}": free for number, free in enumerate(sizes)})
    loop = FilteringLoop(nodes, given=build_policy(size), announces=announces)
    pods = gang(count, build_pod)
    size, is_whole = min(size, count), not count % min(size, count)
    loop.submit(pods)
    fewest = count_fewest(sizes, [min(size, count - start) for start in range(0, count, size)])
    placed = loop.place_fitting(random.sample(pods, len(pods)) if is_whole else pods)
    homes = {}
    for rank, one in enumerate(pods):
        if one.metadata.name in placed:
            homes.setdefault(rank // size, set()).add(placed[one.metadata.name])
    assert all(len(domains) == 1 for domains in homes.values())
    if fewest is not None:
        assert len(placed) == len(pods)
        assert loop.has_plan
        if is_whole:
            assert len(set(placed.values())) == fewest


@pytest.mark.parametrize(
    "nodes", [build_leaves(a=7, b=3), [*build_leaves(a=4), *(build_node(f"x{number}") for number in range(4))]]
)
def test_a_gang_without_room_for_its_segments_does_not_fit_though_nodes_are_free(nodes):
    """Nodes without a domain hold no segment."""
    loop = FilteringLoop(nodes, given=build_policy(4))
    pods = loop.create(8)
    diagnosis = loop.explain_plan(pods[0])
    assert diagnosis.never_fits
    assert [why.text for why in diagnosis.why] == [
        "the gang never fits: it needs 8 slots, and without any other pod the eligible nodes have 4",
    ]


def test_neighbouring_segments_share_a_leaf_whichever_ranks_are_placed_first():
    loop = FilteringLoop(build_leaves(a=8, b=8, c=8), given=build_policy(4))
    pods = loop.create(24)
    early = [9, 3, 10]
    placed = loop.place_fitting([pods[rank] for rank in early + [rank for rank in range(24) if rank not in early]])
    assert [placed[f"g-{rank}"] for rank in range(24)] == [*"a" * 8, *"b" * 8, *"c" * 8]
    assert loop.has_plan


def test_a_node_refused_to_a_segment_has_a_reason():
    loop = FilteringLoop([*build_leaves(a=3, b=2), build_node("bare", "")], given=build_policy(2))
    pods = loop.create(4)
    unlabelled = {"bare": "the node is in no NVLink domain, but all pods of segment 0 of the gang share one"}
    assert loop.find_refusals(pods[0]) == unlabelled
    assert loop.leaves(pods[:1]) == ["a"]
    elsewhere = "segment 0 of the gang is in a in s-a, and b in s-b is another NVLink domain"
    assert loop.find_refusals(pods[1]) == unlabelled | dict.fromkeys(("b-00", "b-01"), elsewhere)


def test_a_leaf_without_known_room_for_a_segment_is_not_planned_but_still_allowed():
    """More nodes can be free there than the extender knows."""
    loop = FilteringLoop(build_leaves(a=3, b=2), given=build_policy(2))
    pods = loop.create(4)
    loop.place(pods[:1])
    assert loop.find_refusals(pods[2]) == {}
    assert loop.decide(pods[2]).target_leaf == ("b", "s-b")


@pytest.mark.parametrize("indexed", [True, False])
def test_segments_are_numbered_by_the_indexes_of_their_pods(indexed):
    """Ranks 0 and 2 do not return. Without indexes of pods, no segment is known until all pods exist."""
    loop = FilteringLoop(build_leaves(a=2, b=2), given=build_policy(2))
    pods = gang(4, build_pod)
    if not indexed:
        pods = [
            placing.change_pod(one, metadata={"name": f"g-{letter}"}) for letter, one in zip("abcd", pods, strict=True)
        ]
    loop.submit([pods[1], pods[3]])
    loop.state.sizes.upsert(volcano.POD_GROUPS, placing.build_pod_group("train", "g", 4))
    loop.place(pods[1:2])
    home = {loop.leaf_of(node) for node in loop.feasible(pods[3])}
    assert loop.decide(pods[3]).target_leaf[0] in home
    assert len(home) == 2, "segment 1 has begun nowhere"
    loop.submit(pods)
    assert len({loop.leaf_of(node) for node in loop.feasible(pods[0])}) == 1


@pytest.mark.parametrize(
    ("version", "kind", "existing", "homes"),
    [
        ("batch/v1", "Job", 1, {"b", "c"}),
        ("batch/v1", "Job", 5, {"c"}),
        ("kubeflow.org/v1", "PyTorchJob", 1, {"b", "c"}),
        ("batch/v1", "CronJob", 1, {"a", "b", "c"}),  # declares no size
        ("argoproj.io/v1alpha1", "Workflow", 1, {"a", "b", "c"}),  # an unknown kind
    ],
)
def test_segments_stay_in_one_domain_before_the_declared_gang_size_is_seen(version, kind, existing, homes):
    loop = FilteringLoop(build_leaves(a=3, b=4, c=4), given=build_policy(4))
    owner = views.OwnerReference(version, kind, "g", "uid-g", controller=True)
    changes = {"owner_references_or_none": [owner], "annotations_or_none": None}
    pods = [placing.change_pod(one, metadata=changes) for one in gang(existing, build_pod)]
    loop.submit(pods)
    loop.place(pods[:-1])
    assert loop.decide(pods[-1]).target_leaf[0] in homes


@pytest.mark.parametrize(("value", "home"), [("4", {"a"}), ("1", {"b", "a"}), (None, {"a", "b"})])
def test_the_segment_annotation_of_a_pod_overrides_the_policy(value, home):
    """Leaf b is too small for four; in segments of two, the gang of six takes both."""
    loop = FilteringLoop(build_leaves(a=4, b=2), given=build_policy(2))
    annotations = {} if value is None else {"railwright.io/segment": value}
    pods = loop.create(6, annotations={"scheduling.k8s.io/group-name": "g", **annotations})
    assert set(loop.place_fitting(pods).values()) == home | ({"b"} if value == "4" else set())


@given(
    st.dictionaries(st.integers(0, 5), st.sampled_from(LEAVES), max_size=4),
    st.integers(0, 5),
    st.lists(st.integers(0, 6), max_size=4),
)
def test_a_declared_size_beyond_the_free_slots_does_not_change_cost_or_target_leaf(placed, own, slots):
    """Segments 0 to 5 of 2 pods have pods that exist; an author declares any number."""
    slots_by_leaf = dict(zip(LEAVES, slots, strict=False))
    plan = msgspec.structs.replace(planner.NO_PLAN, slots_by_leaf=slots_by_leaf)
    targets = set()
    for count, existing in ((60, 60), (75_000, 6)):
        numbered = segments.Segments(2, own, 2, placed, count, existing, {}, 0, None, {})
        with mock.patch.object(rank_order, "Ring", wraps=rank_order.Ring) as ring:
            targets.add(numbered.find_target_leaf(plan))
        assert sum(len(call.args[0]) for call in ring.call_args_list) <= 70
    assert len(targets) == 1


# --- HyperNodes that Volcano tries one after the other --------------------------------------------------------


GANG = views.PodGroup(
    metadata=views.ObjectMeta(namespace="train", name="gang"),
    spec=views.PodGroupSpec(min_member=1, network_topology={"mode": "hard"}),
)


@pytest.mark.parametrize("constraint", [{"networkTopology": {"mode": "soft"}}, {"subGroupPolicy": [{"name": "s"}]}])
def test_a_pod_group_with_a_topology_constraint_is_tried_in_one_hyper_node_at_a_time(constraint):
    table = placing.build_cluster([]).sizes
    group = {"metadata": {"namespace": "train", "name": "gang"}, "spec": constraint}
    table.upsert(volcano.POD_GROUPS, msgspec.convert(group, views.PodGroup))
    assert table.is_confined(membership.GangKey("train/gang"))


class Trial:
    """A gang that is tried in domains, as Volcano's allocate does: each pod takes the best node that is offered."""

    def __init__(self, sizes, pods, busy=()):
        self.nodes = [
            placing.build_node(f"{spine}-{leaf}-{number:03}", f"{spine}{leaf}", spine)
            for (spine, leaf), size in sizes.items()
            for number in range(size)
        ]
        held = [placing.build_pod(f"held-{name}", on=name) for name in busy]
        self.cluster = placing.build_cluster(self.nodes, [*pods, *held])
        self.cluster.sizes.upsert(volcano.POD_GROUPS, GANG)
        self.assumed = self.cluster.assumed
        self.engine = placing.RememberingEngine(self.cluster)
        self.pods = list(pods)

    def list_free(self, domain):
        """Return the free nodes of a spine or leaf."""
        taken = {pod.node for pod in self.assumed} | {pod.node for pod in self.cluster.pods.values() if pod.node}
        names = [node.metadata.name for node in self.nodes]
        return [name for name in names if name.startswith(f"{domain}-") and name not in taken]

    def decide(self, pod, offered, *, is_confined=True):
        request = placing.build_request(pod, offered)
        return self.engine.score(msgspec.structs.replace(request, is_announced=True, is_confined=is_confined))

    def place_in_domain(self, domain, pods=None):
        """Place the pods in a domain; return the decision and node of each."""
        placed = []
        for peer in self.pods if pods is None else pods:
            offered = self.list_free(domain)
            if not offered:
                break
            decision = self.decide(peer, offered)
            node = max(offered, key=decision.scores.__getitem__)
            self.assumed.assume(placing.build_assumed_pod(peer, node))
            placed.append((decision, node))
        return placed

    def discard(self):
        for entry in list(self.assumed):
            self.assumed.forget(entry.uid)


def build_pods(size):
    return [placing.build_pod(f"job-worker-{rank}", group="gang") for rank in range(size)]


def draw_leaves(seed):
    """Return leaves of two spines, one with more nodes than Volcano offers without a sample, and some busy nodes."""
    draws = random.Random(seed)  # noqa: S311 - the same in each run
    most = 60 if seed % 3 == 0 else 8
    sizes = {(spine, leaf): draws.randint(1, most) for spine in ("s0", "s1") for leaf in ("a", "b", "c")}
    names = [f"{spine}-{leaf}-{number:03}" for (spine, leaf), size in sizes.items() for number in range(size)]
    return draws, sizes, draws.sample(names, len(names) // 4)


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_is_planned_only_on_leaves_of_the_domain_that_volcano_tries(seed):
    draws, sizes, busy = draw_leaves(seed)
    size = draws.randint(2, 9)
    trial = Trial(sizes, build_pods(size), busy)
    domains = [*(f"{spine}-{leaf}" for spine, leaf in sizes), "s0", "s1"]
    for domain in draws.sample(domains, len(domains)):
        free = trial.list_free(domain)
        leaves = {(f"{spine}{leaf}", spine) for spine, leaf in sizes if f"{spine}-{leaf}".startswith(domain)}
        placed = trial.place_in_domain(domain)
        assert len(placed) == min(size, len(free))
        for decision, _ in placed:
            assert set(decision.plan.leaves) <= leaves
            for memory in decision.memory.values():
                assert set(memory.reserved) <= leaves
        if len(free) >= size:
            assert placed[0][0].plan.is_complete
            used = {node.rpartition("-")[0] for _, node in placed}
            assert len(used) == len(placed[0][0].plan.leaves), "the pods follow the plan"
        trial.discard()


@pytest.mark.parametrize(("is_confined", "spine"), [(True, "s0"), (False, "s1")])
def test_only_a_gang_without_a_topology_constraint_reserves_nodes_outside_the_offered_ones(is_confined, spine):
    """A long offer may be a sample of all nodes: leaf b is the tightest that holds the gang."""
    trial = Trial({("s0", "a"): 120, ("s1", "b"): 110}, build_pods(105))
    decision = trial.decide(trial.pods[0], trial.list_free("s0"), is_confined=is_confined)
    [memory] = decision.memory.values()
    assert {spine for _, spine in memory.reserved} == {spine}
