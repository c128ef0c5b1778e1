"""A boundary: gangs get nodes of one domain or wait, against every number of free nodes in two of them."""

from hypothesis import given as given_values
from hypothesis import strategies as st
from placing import SPINE, build_request, node, pod, policy
from scheduling_loop import Loop, gang

from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import Code

BOUNDED = policy(boundary=SPINE)


class BoundedLoop(Loop):
    """Also asks the extender's filter, as schedulers do before they ask for scores."""

    def filter(self, waiting):
        return self.engine.filter(build_request(waiting, super().feasible(waiting), self.policy))

    def feasible(self, pod):
        return list(self.filter(pod).feasible)

    def try_all(self, pods):
        """Place the pods that fit, in this order. Return their spines."""
        nodes = [name for waiting in pods if self.feasible(waiting) for name in self.place([waiting])]
        return [self.state.nodes[name].labels[SPINE] for name in nodes]


def make_nodes(*sizes):
    """Return nodes: so many in each leaf, two leaves in each spine."""
    return [
        node(f"{leaf}-{number}", f"l{leaf}", f"s{leaf // 2}")
        for leaf, size in enumerate(sizes)
        for number in range(size)
    ]


@given_values(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.integers(2, 6), st.booleans(), st.randoms())
def test_a_gang_is_whole_in_one_domain_if_one_can_hold_it_and_waits_otherwise(sizes, count, announces, random):
    loop = BoundedLoop(make_nodes(*sizes), given=BOUNDED, announces=announces)
    pods = gang(count, pod)
    loop.submit(pods)
    spines = loop.try_all(random.sample(pods, count))
    fits = max(sum(sizes[:2]), sum(sizes[2:])) >= count
    assert (len(spines), len({*spines})) == ((count, 1) if fits else (0, 0))


def test_the_plan_takes_more_leaves_rather_than_cross_a_boundary():
    places = {"a": ("s0", 3), "b": ("s1", 3), "c": ("s1", 2), "d": ("s1", 1)}
    nodes = [node(f"{leaf}{number}", leaf, spine) for leaf, (spine, size) in places.items() for number in range(size)]
    plans = {}
    for name, given in {"free": policy(), "bounded": BOUNDED}.items():
        loop = Loop(nodes, given=given)
        pods = gang(6, pod)
        loop.submit(pods)
        plans[name] = [leaf[0] for leaf in loop.decide(pods[0]).plan.leaves]
    assert sorted(plans["free"]) == ["a", "b"]
    assert sorted(plans["bounded"]) == ["b", "c", "d"]


def read_refusals(loop, waiting):
    """Return codes and texts of the reasons for which nodes are refused."""
    reasons = [rejection.reason for rejection in loop.filter(waiting).rejections.values()]
    return [(reason.code, rendering.describe(reason).message) for reason in reasons]


def test_a_gang_that_no_domain_can_hold_reads_how_much_room_there_is():
    loop = BoundedLoop(make_nodes(2, 1, 2), given=BOUNDED)
    pods = gang(4, pod)
    loop.submit(pods)
    assert [(code, "room for 4 pods" in text) for code, text in read_refusals(loop, pods[0])] == [
        (Code.BOUNDARY_TOO_SMALL, True)
    ] * 2


def test_a_pod_whose_gang_is_elsewhere_reads_where():
    loop = BoundedLoop(make_nodes(2, 1, 3), given=BOUNDED)
    pods = gang(3, pod)
    loop.submit(pods)
    loop.place(pods[:1])
    ((code, text),) = read_refusals(loop, pods[1])
    assert (code, text.startswith("pods of the gang are in s")) == (Code.BOUNDARY_ELSEWHERE, True)


def test_a_single_pod_needs_no_domain():
    loop = BoundedLoop([node("alone", "", "")], given=BOUNDED)
    pods = gang(1, pod)
    loop.submit(pods)
    assert loop.feasible(pods[0]) == ["alone"]
