"""Segments: consecutive ranks of a gang that share an NVLink domain, against every way to divide the gang."""

import itertools
from unittest import mock

import msgspec
import placing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import LEAF, build_request, leaves, node, pod
from scheduling_loop import Loop, gang

from railwright.fabric.placement.gangs import planner, segments
from railwright.fabric.policy import model
from railwright.fabric.reasons import rendering

LEAVES = tuple((name, "s") for name in "abcd")


def build_policy(segment=None):
    policy = placing.policy()
    fabric = policy.document.fabrics["roce"]
    fabric = msgspec.structs.replace(fabric, nvlink=model.NvLink(domain=LEAF, segment=segment))
    return model.Policy(msgspec.structs.replace(policy.document, fabrics={"roce": fabric}), digest="sha256:test")


class SegmentLoop(Loop):
    """Also asks the extender's filter, as schedulers do before they ask for scores. A pod without a node waits."""

    has_plan = True  # for the whole gang, at each decision

    def decide(self, pod):
        decision = super().decide(pod)
        self.has_plan = self.has_plan and decision.plan.is_complete and decision.gang.target_leaf is not None
        return decision

    def filter(self, waiting):
        nodes = super().feasible(waiting)
        return self.engine.filter(build_request(waiting, nodes, self.policy))

    def feasible(self, pod):
        return list(self.filter(pod).feasible)

    def try_all(self, pods):
        """Place the pods that fit, in this order. Return the leaf of each by name."""
        placed = {}
        for waiting in pods:
            if self.feasible(waiting):
                placed[waiting.metadata.name] = self.leaves([waiting])[0]
        return placed


def count_fewest(sizes, segments):
    """Return the fewest leaves that hold segments of these sizes, None if all together do not."""
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
def test_a_segment_never_crosses_and_gangs_of_whole_segments_use_the_fewest_domains(
    sizes, size, count, random, announces
):
    """The last segment may be smaller. A gang has a plan then, if its ranks come in order."""
    nodes = leaves(**{f"a{number}": free for number, free in enumerate(sizes)})
    loop = SegmentLoop(nodes, given=build_policy(size), announces=announces)
    pods = gang(count, pod)
    size, is_whole = min(size, count), not count % min(size, count)
    loop.submit(pods)
    placed = loop.try_all(random.sample(pods, len(pods)) if is_whole else pods)
    homes = {}
    for rank, one in enumerate(pods):
        if one.metadata.name in placed:
            homes.setdefault(rank // size, set()).add(placed[one.metadata.name])
    assert all(len(domains) == 1 for domains in homes.values())
    fewest = count_fewest(sizes, [min(size, count - start) for start in range(0, count, size)])
    if fewest is not None:
        assert len(placed) == len(pods)
        assert loop.has_plan
        if is_whole:
            assert len(set(placed.values())) == fewest


@pytest.mark.parametrize("nodes", [leaves(a=7, b=3), [*leaves(a=4), *(node(f"x{number}") for number in range(4))]])
def test_a_gang_without_room_for_its_segments_does_not_fit_though_nodes_are_free(nodes):
    """Nodes without a domain hold no segment."""
    loop = SegmentLoop(nodes, given=build_policy(4))
    pods = gang(8, pod)
    loop.submit(pods)
    diagnosis = loop.decide(pods[0]).diagnose()
    assert not diagnosis.fits
    assert [rendering.describe(why).message for why in diagnosis.why] == [
        "the gang never fits: it needs 8 slots, and without any other pod the eligible nodes have 4",
        "8 pods remain, each with rail0..rail3; the cluster has slots for 4",
    ]


def test_neighbouring_segments_share_a_domain_whichever_rank_comes_first():
    loop = SegmentLoop(leaves(a=8, b=8, c=8), given=build_policy(4))
    pods = gang(24, pod)
    loop.submit(pods)
    early = [9, 3, 10]
    placed = loop.try_all([pods[rank] for rank in early]) | loop.try_all(
        [one for rank, one in enumerate(pods) if rank not in early]
    )
    assert [placed[f"g-{rank}"] for rank in range(24)] == [*"a" * 8, *"b" * 8, *"c" * 8]
    assert loop.has_plan


def list_refusals(result):
    return {
        node: rendering.describe(result.rejections[known].reason).message for node, known in result.rejected.items()
    }


def test_a_filtered_node_says_why():
    loop = SegmentLoop(leaves(a=3, b=2), given=build_policy(2))
    pods = gang(4, pod)
    loop.submit(pods)
    assert loop.leaves(pods[:1]) == ["a"]
    assert list_refusals(loop.filter(pods[1])) == {
        f"b-0{number}": "segment 0 of the gang is in a in s-a, and b in s-b is another NVLink domain"
        for number in range(2)
    }
    assert list_refusals(loop.filter(pods[2])) == {
        f"a-0{number}": "segment 1 of the gang needs room for 2 pods in one NVLink domain, and a in s-a has room for 1"
        for number in (1, 2)
    }


def test_a_pod_waits_while_peers_before_it_do_not_exist():
    loop = SegmentLoop(leaves(a=8), given=build_policy(2))
    pods = gang(6, pod)
    loop.submit([pods[0], *pods[3:]])
    loop.state.upsert_pod_group(placing.build_pod_group("train", "g", 6))
    assert set(list_refusals(loop.filter(pods[3])).values()) == {
        "2 pods of the gang do not exist yet, so the segment of this one is not known"
    }
    loop.submit(pods)
    assert loop.filter(pods[3]).feasible


def test_pods_that_come_after_all_others_have_room_in_their_segment():
    loop = SegmentLoop(leaves(a=2, b=4), given=build_policy(4))
    pods = gang(4, pod)
    loop.submit(pods[:2])
    loop.state.upsert_pod_group(placing.build_pod_group("train", "g", 4))
    assert {loop.leaf_of(node) for node in loop.filter(pods[0]).feasible} == {"b"}


def test_workers_do_not_wait_for_a_launcher_that_waits_for_them():
    loop = SegmentLoop(leaves(a=4), given=build_policy(16))
    pods = gang(4, pod)
    loop.submit(pods)
    loop.state.upsert_pod_group(placing.build_pod_group("train", "g", 5))
    assert len(loop.try_all(pods)) == 4


@pytest.mark.parametrize(("value", "home"), [("4", {"a"}), ("1", {"b", "a"}), (None, {"a", "b"})])
def test_the_annotation_of_a_pod_overrides_the_policy(value, home):
    """Leaf b is too small for four; in segments of two, the gang of six takes both."""
    loop = SegmentLoop(leaves(a=4, b=2), given=build_policy(2))
    annotations = {} if value is None else {"railwright.io/segment": value}
    pods = gang(6, pod, annotations={"scheduling.k8s.io/group-name": "g", **annotations})
    loop.submit(pods)
    assert set(loop.try_all(pods).values()) == home | ({"b"} if value == "4" else set())


def test_without_nvlink_the_annotation_has_no_effect():
    loop = SegmentLoop(leaves(a=1, b=1))
    pods = gang(2, pod, annotations={"scheduling.k8s.io/group-name": "g", "railwright.io/segment": "2"})
    loop.submit(pods)
    assert len(loop.try_all(pods)) == 2


@given(
    st.dictionaries(st.integers(0, 5), st.sampled_from(LEAVES), max_size=4),
    st.integers(0, 5),
    st.lists(st.integers(0, 6), max_size=4),
)
def test_a_declared_size_beyond_the_room_costs_no_more_and_changes_no_target(placed, own, slots):
    """Segments 0 to 5 of 2 pods have pods that exist; an author declares any number."""
    slots_by_leaf = dict(zip(LEAVES, slots, strict=False))
    plan = msgspec.structs.replace(planner.NO_PLAN, leaves=tuple(slots_by_leaf), slots_by_leaf=slots_by_leaf)
    targets = set()
    for count, existing in ((60, 60), (75_000, 6)):
        numbered = segments.Segments(2, own, 2, 0, placed, count, existing, {}, 0, None, {})
        with mock.patch.object(segments, "_rank", wraps=segments._rank) as ranks:
            targets.add(numbered.find_target_leaf(plan))
        assert ranks.call_count <= 70
    assert len(targets) == 1
