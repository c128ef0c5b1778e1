"""Announced pods that the cluster does not show yet: how long they count, and that they are busy for all others."""

import extending
import msgspec
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st
from placing import GPU, LEAF, RESOURCES, leaves, node, pod, policy

from railwright.fabric import views
from railwright.fabric.placement.state import assumed_pods

NODES = [f"a0-{number:02}" for number in range(4)]
UNITS = {GPU: 8, **dict.fromkeys(RESOURCES, 1)}


class Site(extending.Site):
    """Four nodes of one leaf, each with one device of a rail."""

    def __init__(self):
        super().__init__(leaves(a0=4), (), policy(required=True), now=0.0)
        self.close()

    def announce(self, uid: str, node: str, *, job: str = "train/job", units=None) -> dict:
        scalars = {name: 1000 * count for name, count in (units or UNITS).items()}
        task = {"UID": uid, "Namespace": "train", "Name": uid, "Job": job, "NodeName": node, "Status": 2}
        return self.ask_volcano("allocate", {"task": {**task, "InitResreq": {"ScalarResources": scalars}}})

    def list_feasible(self) -> list[str]:
        return self.filter(pod("w"))

    def expire(self, now: float) -> None:
        self.now = now
        self.state.assumed.expire(now)


@pytest.fixture
def site():
    return Site()


def test_announcements_of_unknown_pods_leave_every_node_feasible(site):
    for number, name in enumerate(NODES * 20):
        assert site.announce(f"forged-{number}", name) == {"errorMessage": ""}
    assert site.list_feasible() == NODES


@pytest.mark.parametrize("is_listed", [False, True])
def test_an_announcement_counts_from_when_the_watch_shows_its_pod(site, is_listed):
    site.announce("uid-early", NODES[0])
    site.pods.replace([pod("early")]) if is_listed else site.pods.upsert(pod("early"))
    site.pods.upsert(pod("late"))
    site.announce("uid-late", NODES[1])
    assert site.list_feasible() == NODES[2:]
    site.pods.replace([pod("early"), pod("late")])
    assert site.list_feasible() == NODES[2:]


def test_an_announced_pod_uses_the_devices_of_its_object(site):
    site.pods.upsert(pod("small", gpus=1, rails=0))
    site.announce("uid-small", NODES[0], units={GPU: 8, RESOURCES[0]: 99})
    site.announce("uid-other", NODES[1], units={RESOURCES[0]: 99})
    site.pods.upsert(pod("other", gpus=0, rails=0))
    free = [site.state.assumed.get(uid).requests.get(RESOURCES[0], 0) for uid in ("uid-small", "uid-other")]
    assert free == [0, 0]


def test_a_pod_that_is_bound_elsewhere_frees_the_announced_node(site):
    site.pods.upsert(pod("moved"))
    site.announce("uid-moved", NODES[0])
    assert NODES[0] not in site.list_feasible()
    site.pods.upsert(pod("moved", on=NODES[3]))
    assert site.list_feasible() == NODES[:3]


def test_an_unseen_pod_expires_after_seconds_and_a_seen_one_after_assume_seconds(site):
    site.pods.upsert(pod("seen"))
    site.announce("uid-seen", NODES[0])
    site.announce("unseen", NODES[1])
    site.close()
    site.expire(assumed_pods.UNSEEN_SECONDS + 0.1)
    assert [entry.uid for entry in site.state.assumed] == ["uid-seen"]
    site.expire(31)
    assert len(site.state.assumed) == 0


def test_the_end_of_a_session_does_not_prolong_an_unseen_pod(site):
    site.announce("unseen", NODES[1])
    site.now = assumed_pods.UNSEEN_SECONDS
    site.close()
    site.expire(assumed_pods.UNSEEN_SECONDS + 0.1)
    assert len(site.state.assumed) == 0


def test_thousands_of_pods_announced_before_the_watch_shows_them_are_kept(site):
    gang = 2000
    for number in range(gang):
        site.announce(f"uid-g-{number}", NODES[number % 4])
    assert len(list(site.state.assumed.list_of_gang("train/job"))) == gang
    for number in range(gang):
        site.pods.upsert(pod(f"g-{number}", group="job"))
    assert site.state.assumed.unseen == 0
    assert len(site.state.assumed) == gang


def test_unseen_pods_are_limited_in_number_and_known_ones_keep_their_place(site):
    site.pods.upsert(pod("seen"))
    site.announce("uid-seen", NODES[0])
    for number in range(5 * assumed_pods.MIN_UNSEEN):
        site.announce(f"forged-{number}", NODES[1])
    assert site.state.assumed.unseen == assumed_pods.MIN_UNSEEN
    assert site.state.assumed.get("uid-seen") is not None
    assert site.state.assumed.get(f"forged-{5 * assumed_pods.MIN_UNSEEN - 1}") is not None


def test_more_unseen_pods_are_kept_where_more_pods_are_known():
    assumed = assumed_pods.AssumedPods(assume_seconds=30)
    example = Site()
    example.announce("x", NODES[0])
    entry = example.state.assumed.get("x")
    for number in range(5000):
        assumed.assume_unseen(msgspec.structs.replace(entry, uid=f"u{number}"), "", 4000)
    assert assumed.unseen == 4000


# --- announcements of one scheduler are busy for all others ---------------------------------------------------


N, OTHER = "n-0", "n-1"


class Schedulers(extending.Site):
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
def schedulers(request):
    return Schedulers(required=request.param)


@pytest.mark.parametrize(("first", "second"), [("red", "blue"), ("", "blue"), ("red", "")])
def test_a_rail_announced_by_one_volcano_is_busy_for_another_in_every_verb(schedulers, first, second):
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    assert schedulers.allocate(own, N, first) == ""
    assert schedulers.predicate(second, theirs, N) == 2
    assert schedulers.predicate(second, theirs, OTHER) == 0
    scores = schedulers.scores(second, theirs)
    assert scores[N] == 0 < scores[OTHER]
    assert "rail0 of n-0 is assumed for a pod of another scheduler" in schedulers.allocate(theirs, N, second)
    assert schedulers.allocate(theirs, OTHER, second) == ""


def test_an_announced_device_stays_busy_until_and_after_the_binding():
    schedulers = Schedulers()
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red")
    schedulers.close("red")
    assert schedulers.predicate("blue", theirs, N) == 2
    schedulers.pods.upsert(pod("mine", on=N))
    assert len(schedulers.state.assumed) == 0
    assert schedulers.predicate("blue", theirs, N) == 2, "its session began before"
    assert schedulers.scores("blue", theirs)[N] == 0
    assert "was allocated by another scheduler in the meantime" in schedulers.allocate(theirs, N, "blue")


def test_devices_of_a_rolled_back_pod_are_free_for_the_other_scheduler(schedulers):
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red")
    schedulers.deallocate("red", own)
    assert schedulers.predicate("blue", theirs, N) == 0
    assert schedulers.scores("blue", theirs)[N] > 0
    assert schedulers.allocate(theirs, N, "blue") == ""


def test_kube_scheduler_does_not_get_devices_that_volcano_has_allocated(schedulers):
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red")
    assert schedulers.filter(theirs) == [OTHER]
    scores = schedulers.score(theirs)
    assert scores[N] < scores[OTHER]


def test_volcano_does_not_get_devices_that_kube_scheduler_is_binding(schedulers):
    first, second, theirs = schedulers.created("first"), schedulers.created("second"), schedulers.created("theirs")
    schedulers.filter(first, [N, OTHER])
    schedulers.filter(second, [OTHER])
    assert schedulers.predicate("blue", theirs, N) == 2
    assert schedulers.scores("blue", theirs)[N] == 0
    assert "assumed for a pod of another scheduler" in schedulers.allocate(theirs, N, "blue")
    assert schedulers.filter(first, [N, OTHER]) == [N, OTHER], "kube-scheduler itself is refused nothing for it"


def test_a_pod_that_moves_from_kube_scheduler_to_volcano_does_not_block_itself(schedulers):
    own = schedulers.created("mine")
    schedulers.filter(own, [N])
    assert schedulers.predicate("", own, N) == 0
    assert schedulers.scores("", own)[N] > 0
    assert schedulers.allocate(own, N, "") == ""


def test_accelerators_of_a_node_with_shared_rails_are_not_given_twice(schedulers):
    placement = schedulers.verbs.decider.policy().document.fabrics["roce"].placement
    schedulers = Schedulers(required=placement.rails == "required", rails_each=100)
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red")
    assert schedulers.predicate("blue", theirs, N) == 2
    assert schedulers.scores("blue", theirs)[N] == 0
    assert "nvidia.com/gpu of n-0 is assumed for a pod of another scheduler" in schedulers.allocate(theirs, N, "blue")
    assert schedulers.filter(theirs) == [OTHER]


def test_both_schedulers_get_devices_of_a_shared_pool_while_some_are_free():
    schedulers = Schedulers(rails_each=2)
    small = [schedulers.created(f"p-{i}", gpus=1) for i in range(4)]
    schedulers.allocate(small[0], N, "red")
    assert schedulers.predicate("blue", small[1], N) == 0
    assert schedulers.allocate(small[1], N, "blue") == ""
    assert schedulers.predicate("blue", small[2], N, rails=1) == 2, "one by each, and blue knows of its own alone"
    assert schedulers.predicate("red", small[2], N, rails=1) == 2
    assert "assumed for a pod of another scheduler" in schedulers.allocate(small[2], N, "blue")


def test_a_scope_is_not_blocked_by_its_own_pods(schedulers):
    own, peer = schedulers.created("w-0", group="g"), schedulers.created("w-1", group="g")
    schedulers.allocate(own, N, "red")
    assert schedulers.predicate("red", peer, N) == 0, "its session says that a rail is idle"
    assert schedulers.scores("red", own)[N] > 0, "nor by its own old place"


def test_pipelined_devices_of_one_scope_are_not_free_in_another_until_the_session_ends(schedulers):
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red", Status=extending.PIPELINED)
    assert schedulers.predicate("blue", theirs, N) == 2
    schedulers.close("red")
    assert schedulers.predicate("blue", theirs, N) == 0


def test_a_node_that_another_scope_is_filling_is_not_scored_as_one_to_be_emptied():
    schedulers = Schedulers(rails_each=2)
    schedulers.pods.upsert(pod("bound", gpus=1, on=N))
    own, theirs = schedulers.created("mine", gpus=1), schedulers.created("theirs", gpus=1)
    schedulers.allocate(own, N, "red")
    assert schedulers.scores("blue", theirs, rails=1)[N] == 0


def test_the_reason_of_a_refusal_is_in_the_answer_and_the_explanation(schedulers):
    own, theirs = schedulers.created("mine"), schedulers.created("theirs")
    schedulers.allocate(own, N, "red")
    schedulers.scores("blue", theirs)
    explanation = schedulers.explain("theirs")
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
    schedulers = Schedulers(required=required, rails_each=devices)
    scopes, names = ("red", "blue"), (N, OTHER)
    placed = {scope: {} for scope in scopes}  # announced and not bound: pod -> node
    bound: dict[str, str] = {}
    bound_in_session = {scope: [] for scope in scopes}  # nodes of its own pods that were bound since it began
    snapshot = dict.fromkeys(scopes, 0)  # how many of the bound pods each session began with
    for number, (what, by, where) in enumerate(steps):
        scope, name = scopes[by], names[where]
        known = list(bound.values())[: snapshot[scope]]
        if what == "place":
            tree = schedulers.created(f"p-{number}", gpus=1)
            held = [*known, *placed[scope].values(), *bound_in_session[scope]].count(name)
            fits = held < devices and schedulers.predicate(scope, tree, name, rails=held) == 0
            if fits and schedulers.allocate(tree, name, scope) == "":
                placed[scope][f"p-{number}"] = name
        elif what == "take back" and placed[scope]:
            last, on = placed[scope].popitem()
            schedulers.deallocate(scope, schedulers.created(last, gpus=1))
        elif what == "bind" and placed[scope]:
            first = next(iter(placed[scope]))
            on = placed[scope].pop(first)
            bound[first] = on
            bound_in_session[scope].append(on)
            schedulers.pods.upsert(pod(first, gpus=1, on=on))
        for ended in (scope,) if what == "close" else () if what != "bind" or required else scopes:
            schedulers.close(ended)
            snapshot[ended] = len(bound)
            bound_in_session[ended].clear()
        for node_name in names:
            total = sum(list(taken.values()).count(node_name) for taken in (*placed.values(), bound))
            assert total <= devices, (node_name, placed, bound)
