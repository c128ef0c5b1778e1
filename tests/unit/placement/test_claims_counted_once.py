"""A device is counted once, whatever the order in which pods, claims, allocations and bindings are observed."""

import itertools

import devices
import pytest
from claimed import GPU, RAIL, build_claim, build_node, build_pod, build_template, get_sink, name_devices, policy
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import state as states
from railwright.fabric import resources
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.workloads import membership

pytestmark = pytest.mark.exhaustive

USED = {GPU: 3, RAIL[0]: 1, RAIL[1]: 1, RAIL[2]: 1, RAIL[3]: 0}
OFFERED = {GPU: 8, **dict.fromkeys(RAIL, 1)}
FIRST, SECOND = {GPU: 2, RAIL[0]: 1, RAIL[1]: 1}, {GPU: 1, RAIL[2]: 1}

# what each watch and the scheduler deliver, each in its own order
POD = ("pod", "bound", "pod deleted")
TEMPLATES = ("template t", "template u")
CLAIM_T = ("claim t", "allocated t", "deleted t")
CLAIM_U = ("claim u", "allocated u", "deleted u")
SCHEDULER = ("assumed",)
ENDS = {"pod deleted", "deleted t", "deleted u"}


class World:
    """The extender's state with a node, and a pod of two claims that is scheduled there."""

    def __init__(self) -> None:
        self.state = states.State(assume_seconds=1000)
        self.state.cluster.upsert_node(build_node("n1"))
        name_devices(self.state.cluster)
        for offered in devices.read_slices(*devices.build_slices("n1")):
            self.state.cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))
        self.engine = engine.PlacementEngine(self.state.cluster, self.state.assumed)
        self.pods, self.claims = states.Pods(self.state), states.Claims(self.state)
        self.templates = get_sink(self.state, "ResourceClaimTemplate")
        self.seen: set[str] = set()

    def pod(self, on=""):
        return build_pod("p", on=on, templates=("t", "u"))

    def claim(self, name, on=""):
        rails, gpus, first = ((0, 1), 2, 0) if name == "t" else ((2,), 1, 2)
        entry = "railwright" if name == "t" else "railwright-2"
        tree = build_claim(name, rails, gpus=gpus, pod_uid="uid-p", on=on, entry=entry, first_gpu=first)
        return devices.read_claim(tree)

    def handle(self, event: str) -> None:
        self.seen.add(event)
        kind, _, name = event.partition(" ")
        match kind:
            case "template":
                self.templates.upsert(build_template(name, (0, 1) if name == "t" else (2,)))
            case "claim":
                self.claims.upsert(self.claim(name))
            case "allocated":
                self.claims.upsert(self.claim(name, "n1"))
            case "deleted":
                self.claims.remove(self.claim(name, "n1"))
            case "bound":
                self.pods.upsert(self.pod("n1"))
            case "assumed":
                self.assume()
            case "pod" if name:
                self.pods.remove(self.pod("n1"))
            case "pod":
                self.pods.upsert(self.pod())

    def assume(self) -> None:
        pod = self.pod()
        bound = self.state.cluster.pods.get("uid-p")
        if bound is not None and bound.node:
            return  # as the extender does: the announcement is late
        self.state.assumed.assume(
            assumed_pods.AssumedPod(
                uid="uid-p",
                key="train/p",
                gang=membership.GangKey(""),
                rank=membership.find_rank(pod),
                node="n1",
                requests=self.compute_requests(pod),
                state=assumed_pods.State.ALLOCATED,
                since=0.0,
            )
        )

    def compute_requests(self, pod):
        return self.state.cluster.compute_requests(pod, resources.compute_requests(pod.spec))

    def count_used(self):
        """Return the devices in use as the node's class has them, for another pod."""
        other = build_pod("other", templates=("all",))
        self.templates.upsert(build_template("all", (0, 1, 2, 3)))
        request = scheduling_request.build_request(other, policy(), {}, ["n1"], requests=self.compute_requests(other))
        index = self.engine.get_index(request)
        free = index.class_of_node["n1"].evaluation.facts.free
        by_name = dict(zip(index.signature.devices, free, strict=True))
        return {name: OFFERED[name] - by_name[name] // 1000 for name in USED}

    def expect_used(self):
        """Return the expected devices in use: of allocated claims, and of an announced pod's other known claims."""
        used = dict.fromkeys(USED, 0)
        is_announced = bool({"assumed", "bound"} & self.seen) and "pod deleted" not in self.seen
        for name, amounts in (("t", FIRST), ("u", SECOND)):
            is_held = f"allocated {name}" in self.seen and f"deleted {name}" not in self.seen
            is_known = f"template {name}" in self.seen or (
                f"claim {name}" in self.seen and f"deleted {name}" not in self.seen
            )
            if is_held or (is_announced and is_known):
                used = {resource: amount + amounts.get(resource, 0) for resource, amount in used.items()}
        return used


@st.composite
def orders(draw):
    """Draw an interleaving of the watches' events. The pod comes first, deletions come last."""
    streams = [list(POD[1:]), list(TEMPLATES), list(CLAIM_T), list(CLAIM_U), list(SCHEDULER)]
    begins = [[event for event in stream if event not in ENDS] for stream in streams]
    ends = draw(st.permutations(sorted(ENDS)))
    order = ["pod"]
    while any(begins):
        stream = draw(st.sampled_from([stream for stream in begins if stream]))
        order.append(stream.pop(0))
        if draw(st.booleans()):
            order.append(draw(st.sampled_from(order)) if order[-1] != "pod" else order[-1])
    return [*_drop_reversals(order), *ends]


def _drop_reversals(order):
    """Remove events that go back to an older version: a watch may repeat its newest event only."""
    events, newest = [], {}
    for event in order:
        stream = next(stream for stream in (POD, TEMPLATES, CLAIM_T, CLAIM_U, SCHEDULER) if event in stream)
        if stream is TEMPLATES or stream.index(event) >= newest.get(stream, 0):
            newest[stream] = stream.index(event)
            events.append(event)
    return events


@settings(max_examples=300, deadline=None)
@given(order=orders())
def test_each_device_is_counted_once_in_any_order_of_events(order):
    world = World()
    for event in order:
        world.handle(event)
        assert world.count_used() == world.expect_used(), order


def test_an_assumed_pod_that_the_watch_has_not_shown_is_not_counted_beside_its_claims():
    world = World()
    for event in ("template t", "template u", "assumed", "claim t", "allocated t"):
        world.handle(event)
        assert all(used <= 1 for name, used in world.count_used().items() if name != GPU)
    assert world.count_used() == USED


def test_every_order_of_allocation_and_binding_counts_each_device_once():
    for order in itertools.permutations(("assumed", "allocated t", "allocated u", "bound")):
        world = World()
        for event in ("pod", "template t", "template u", *order):
            world.handle(event)
            assert world.count_used() == world.expect_used(), order
        assert world.count_used() == USED
