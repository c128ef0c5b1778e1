"""Devices that one scheduler has announced and the cluster does not show yet are busy for all others."""

import extending
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st
from placing import GPU, LEAF, RESOURCES, node, pod, policy

from railwright.fabric import views

N, OTHER = "n-0", "n-1"


class Site(extending.Site):
    """Two nodes in a leaf, for two Volcano instances and a kube-scheduler."""

    def __init__(self, *, required: bool = True, rails_each: int = 1) -> None:
        nodes = [node(name, "leaf", rails_each=rails_each) for name in (N, OTHER)]
        super().__init__(nodes, (), policy(required=required, domains=[LEAF]))
        self.whole = {GPU: 8, **dict.fromkeys(RESOURCES, rails_each)}
        for scope in ("red", "blue", ""):
            self.close(scope)

    def created(self, name: str, **kinds) -> views.Pod:
        """Return a pod that the watch has shown."""
        made_pod = pod(name, **kinds)
        self.pods.upsert(made_pod)
        return made_pod

    def predicate(self, scope: str, of: views.Pod, name: str, **taken: int) -> int:
        request = {"task": extending.build_task(of), "node": self.offered(name, **taken)}
        return self.ask_volcano("predicate", request, scope)["code"]

    def scores(self, scope: str, of: views.Pod, **taken: int) -> dict[str, float]:
        nodes = [self.offered(name, **taken) for name in (N, OTHER)]
        return self.ask_volcano("prioritize", {"task": extending.build_task(of), "nodes": nodes}, scope)["nodeScore"]

    def deallocate(self, scope: str, of: views.Pod) -> None:
        self.ask_volcano("deallocate", {"task": extending.build_task(of)}, scope)

    def offered(self, name: str, **taken: int) -> dict:
        """Return a node as an instance sees it, without the other's session. Its own pods use `taken` rails."""
        free = {resource: amount * 1000 for resource, amount in self.whole.items()}
        for resource in RESOURCES:
            free[resource] -= 1000 * taken.get("rails", 0)
        amounts = {"MilliCPU": 128000, "Memory": 2 << 40, "ScalarResources": free}
        all_of_it = {**amounts, "ScalarResources": {resource: amount * 1000 for resource, amount in self.whole.items()}}
        return {"Name": name, "Idle": amounts, "Allocatable": all_of_it}


@pytest.fixture(params=[True, False], ids=["required", "preferred"])
def site(request):
    return Site(required=request.param)


@pytest.mark.parametrize(("first", "second"), [("red", "blue"), ("", "blue"), ("red", "")])
def test_a_rail_announced_by_one_volcano_is_busy_for_another_in_every_verb(site, first, second):
    own, theirs = site.created("mine"), site.created("theirs")
    assert site.allocate(own, N, first) == ""
    assert site.predicate(second, theirs, N) == 2
    assert site.predicate(second, theirs, OTHER) == 0
    scores = site.scores(second, theirs)
    assert scores[N] == 0 < scores[OTHER]
    assert "rail0 of n-0 is assumed for a pod of another scheduler" in site.allocate(theirs, N, second)
    assert site.allocate(theirs, OTHER, second) == ""


def test_an_announced_device_stays_busy_until_and_after_the_binding():
    site = Site()
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red")
    site.close("red")
    assert site.predicate("blue", theirs, N) == 2
    site.pods.upsert(pod("mine", on=N))
    assert len(site.state.assumed) == 0
    assert site.predicate("blue", theirs, N) == 2, "its session began before"
    assert site.scores("blue", theirs)[N] == 0
    assert "was allocated by another scheduler in the meantime" in site.allocate(theirs, N, "blue")


def test_devices_of_a_rolled_back_pod_are_free_for_the_other_scheduler(site):
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red")
    site.deallocate("red", own)
    assert site.predicate("blue", theirs, N) == 0
    assert site.scores("blue", theirs)[N] > 0
    assert site.allocate(theirs, N, "blue") == ""


def test_kube_scheduler_does_not_get_devices_that_volcano_has_allocated(site):
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red")
    assert site.filter(theirs) == [OTHER]
    scores = site.score(theirs)
    assert scores[N] < scores[OTHER]


def test_volcano_does_not_get_devices_that_kube_scheduler_is_binding(site):
    first, second, theirs = site.created("first"), site.created("second"), site.created("theirs")
    site.filter(first, [N, OTHER])
    site.filter(second, [OTHER])
    assert site.predicate("blue", theirs, N) == 2
    assert site.scores("blue", theirs)[N] == 0
    assert "assumed for a pod of another scheduler" in site.allocate(theirs, N, "blue")
    assert site.filter(first, [N, OTHER]) == [N, OTHER], "kube-scheduler itself is refused nothing for it"


def test_a_pod_that_moves_from_kube_scheduler_to_volcano_does_not_block_itself(site):
    own = site.created("mine")
    site.filter(own, [N])
    assert site.predicate("", own, N) == 0
    assert site.scores("", own)[N] > 0
    assert site.allocate(own, N, "") == ""


def test_accelerators_of_a_node_with_shared_rails_are_not_given_twice(site):
    placement = site.verbs.decider.policy().document.fabrics["roce"].placement
    site = Site(required=placement.rails == "required", rails_each=100)
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red")
    assert site.predicate("blue", theirs, N) == 2
    assert site.scores("blue", theirs)[N] == 0
    assert "nvidia.com/gpu of n-0 is assumed for a pod of another scheduler" in site.allocate(theirs, N, "blue")
    assert site.filter(theirs) == [OTHER]


def test_both_schedulers_get_devices_of_a_shared_pool_while_some_are_free():
    site = Site(rails_each=2)
    small = [site.created(f"p-{i}", gpus=1) for i in range(4)]
    site.allocate(small[0], N, "red")
    assert site.predicate("blue", small[1], N) == 0
    assert site.allocate(small[1], N, "blue") == ""
    assert site.predicate("blue", small[2], N, rails=1) == 2, "one by each, and blue knows of its own alone"
    assert site.predicate("red", small[2], N, rails=1) == 2
    assert "assumed for a pod of another scheduler" in site.allocate(small[2], N, "blue")


def test_a_scope_is_not_blocked_by_its_own_pods(site):
    own, peer = site.created("w-0", group="g"), site.created("w-1", group="g")
    site.allocate(own, N, "red")
    assert site.predicate("red", peer, N) == 0, "its session says that a rail is idle"
    assert site.scores("red", own)[N] > 0, "nor by its own old place"


def test_pipelined_devices_of_one_scope_are_not_free_in_another_until_the_session_ends(site):
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red", Status=extending.PIPELINED)
    assert site.predicate("blue", theirs, N) == 2
    site.close("red")
    assert site.predicate("blue", theirs, N) == 0


def test_a_node_that_another_scope_is_filling_is_not_scored_as_one_to_be_emptied():
    site = Site(rails_each=2)
    site.pods.upsert(pod("bound", gpus=1, on=N))
    own, theirs = site.created("mine", gpus=1), site.created("theirs", gpus=1)
    site.allocate(own, N, "red")
    assert site.scores("blue", theirs, rails=1)[N] == 0


def test_the_reason_of_a_refusal_is_in_the_answer_and_the_explanation(site):
    own, theirs = site.created("mine"), site.created("theirs")
    site.allocate(own, N, "red")
    site.scores("blue", theirs)
    explanation = site.explain("theirs")
    rejected = next(row for row in explanation.nodes if row["node"] == N)
    message = rejected["rejection"].message
    assert "busy" in message or "assumed for" in message
    assert "train/mine" in str(rejected)


STEPS = st.lists(
    st.tuples(st.sampled_from(["place", "take back", "bind", "close"]), st.integers(0, 1), st.integers(0, 1)),
    max_size=25,
)


@given_(STEPS, st.booleans(), st.integers(1, 3))
def test_two_instances_in_any_order_never_hold_more_of_a_rail_than_there_is(steps, required, devices):
    """Each works on what was bound as its session began, less what it has placed since, and asks predicate first.

    Rails that are only preferred are not compared with later bindings of others (docs/schedulers.md), so a binding
    begins new sessions then.
    """
    site = Site(required=required, rails_each=devices)
    scopes, names = ("red", "blue"), (N, OTHER)
    placed = {scope: {} for scope in scopes}  # announced and not bound: pod -> node
    bound: dict[str, str] = {}
    bound_in_session = {scope: [] for scope in scopes}  # nodes of its own pods that were bound since it began
    snapshot = dict.fromkeys(scopes, 0)  # how many of the bound pods each session began with
    for number, (what, by, where) in enumerate(steps):
        scope, name = scopes[by], names[where]
        known = list(bound.values())[: snapshot[scope]]
        if what == "place":
            tree = site.created(f"p-{number}", gpus=1)
            held = [*known, *placed[scope].values(), *bound_in_session[scope]].count(name)
            fits = held < devices and site.predicate(scope, tree, name, rails=held) == 0
            if fits and site.allocate(tree, name, scope) == "":
                placed[scope][f"p-{number}"] = name
        elif what == "take back" and placed[scope]:
            last, on = placed[scope].popitem()
            site.deallocate(scope, site.created(last, gpus=1))
        elif what == "bind" and placed[scope]:
            first = next(iter(placed[scope]))
            on = placed[scope].pop(first)
            bound[first] = on
            bound_in_session[scope].append(on)
            site.pods.upsert(pod(first, gpus=1, on=on))
        for ended in (scope,) if what == "close" else () if what != "bind" or required else scopes:
            site.close(ended)
            snapshot[ended] = len(bound)
            bound_in_session[ended].clear()
        for node_name in names:
            total = sum(list(taken.values()).count(node_name) for taken in (*placed.values(), bound))
            assert total <= devices, (node_name, placed, bound)
