"""A gang that waits for GPUs, rails or devices of claims is explained, although no scheduler asks about it."""

import json
from unittest import mock

import devices
import extending
import msgspec
import placing
import pytest
from claimed import FABRIC, build_claim, build_node, build_pod, build_template, get_sink, name_devices, policy

from extender import gang_tracker
from extender import state as states
from railwright.fabric import views
from railwright.fabric.placement import engine
from railwright.fabric.reasons import rendering
from railwright.serving import turns

SAME_RAILS = (
    "all pods of the gang take rail0, rail1 (claims.gangRails: same), also two of them on one node; "
    "other free rails of a node do not count"
)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def state():
    state = states.State(assume_seconds=30)
    state.cluster.replace_nodes([build_node(name, "a") for name in ("n1", "n2")])
    name_devices(state.cluster)
    for name in ("n1", "n2"):
        for offered in devices.read_slices(*devices.build_slices(name)):
            state.cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))
    get_sink(state, "ResourceClaimTemplate").upsert(build_template("t", (0, 1)))
    states.Claims(state).upsert(devices.read_claim(build_claim("held", (1,), gpus=1, on="n1", pod_uid="uid-holder")))
    states.Pods(state).replace([build_pod("holder", on="n1", templates=(), claims=("held",))])
    return state


@pytest.fixture
def handlers(state, clock):
    return extending.Extender(state, policy, clock=clock)


def add_gang(state, size=2):
    pods = states.Pods(state)
    for rank in range(size):
        pods.upsert(build_pod(f"g-{rank}", group="g"))


def test_a_gang_that_waits_for_its_rails_is_explained_with_rail_and_holder(state, handlers, clock):
    add_gang(state)
    turns.complete(handlers.decider.record_waiting_pods())
    assert handlers.decider.explanations.explain("train", "g-0", handlers.decider.gangs) is None
    clock.now = gang_tracker.WAITING_SECONDS
    turns.complete(handlers.decider.record_waiting_pods())
    [outcome] = handlers.decider.gangs.check(clock.now)
    assert outcome.code == gang_tracker.UNPLACEABLE
    assert [rendering.render(why) for why in outcome.reasons] == [
        "2 pods remain, each with rail0, rail1; the cluster has slots for 1",
        SAME_RAILS,
        "1 node: rail1 has 0 of 1 free, 1 needed",
        "rail1 on n1 is used by train/holder",
    ]
    explained = handlers.decider.explanations.explain("train", "g-0", handlers.decider.gangs)
    rows = {row["node"]: row for row in explained.nodes}
    assert "rail1 is busy: 0 of 1 NIC free, 1 needed" in str(rows["n1"])
    assert explained.fabric == FABRIC


def test_a_node_that_holds_one_pod_of_the_gang_is_full_with_a_reason(state, handlers, clock):
    """n1 lacks rail1 by another pod. On n2 the gang's first pod has rail0 and rail1; rail2 and rail3 are free."""
    held = build_claim("g-0", (0, 1), gpus=2, on="n2", pod_uid="uid-g-0", entry="railwright")
    states.Claims(state).upsert(devices.read_claim(held))
    states.Pods(state).upsert(build_pod("g-0", group="g", on="n2"))
    states.Pods(state).upsert(build_pod("g-1", group="g"))
    turns.complete(handlers.decider.record_waiting_pods())
    clock.now = gang_tracker.WAITING_SECONDS
    turns.complete(handlers.decider.record_waiting_pods())
    [outcome] = handlers.decider.gangs.check(clock.now)
    texts = [rendering.render(why) for why in outcome.reasons]
    assert texts[1] == SAME_RAILS
    assert "rail0 on n2 is used by train/g-0" in texts[-1]


def test_a_pod_that_a_scheduler_asked_about_is_not_explained_again(state, handlers, clock):
    add_gang(state)
    metadata = {"name": "g-0", "namespace": "train", "uid": "uid-g-0", "labels": {"railwright.io/fabric": FABRIC}}
    handlers.kube.filter(json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["n2"]}).encode())
    before = handlers.decider.explanations.explain("train", "g-0", handlers.decider.gangs)
    clock.now = gang_tracker.WAITING_SECONDS
    turns.complete(handlers.decider.record_waiting_pods())
    clock.now *= 2
    turns.complete(handlers.decider.record_waiting_pods())
    assert handlers.decider.explanations.explain("train", "g-0", handlers.decider.gangs).nodes == before.nodes


def test_pods_that_are_bound_or_gone_are_forgotten(state, handlers, clock):
    pods = states.Pods(state)
    add_gang(state, size=3)
    pods.upsert(build_pod("g-0", group="g", on="n2"))
    pods.remove(build_pod("g-1", group="g"))
    turns.complete(handlers.decider.record_waiting_pods())
    clock.now = gang_tracker.WAITING_SECONDS
    assert [pod.metadata.name for pod in state.waiting.list_due(clock.now, 10.0)] == ["g-2"]
    pods.replace([])
    assert not state.waiting.list_due(clock.now * 3, 10.0)


class FullCluster:
    """Two nodes of eight GPUs, of which the gang `first` uses some; its nodes have more rail devices than pods."""

    def __init__(self, clock, used_gpus):
        state = states.State(assume_seconds=30)
        state.cluster.replace_nodes([placing.node(name, "a", rails_each=16) for name in ("n1", "n2")])
        chosen = placing.policy(required=True, domains=[placing.LEAF])
        self.pods, self.clock = states.Pods(state), clock
        self.handlers = extending.Extender(state, lambda: chosen, clock=clock)
        self.pods.replace([placing.pod(f"first-{name}", on=name, gpus=used_gpus) for name in ("n1", "n2")])

    def add_waiting(self, **more):
        for rank in range(2):
            self.pods.upsert(placing.pod(f"next-{rank}", group="next", schedulerName="volcano", **more))
        turns.complete(self.handlers.decider.record_waiting_pods())
        self.clock.now = gang_tracker.WAITING_SECONDS
        turns.complete(self.handlers.decider.record_waiting_pods())

    def explain(self):
        return self.handlers.decider.explain("train", "next-0")


def test_a_gang_that_waits_for_gpus_is_explained_though_its_scheduler_does_not_ask(clock):
    cluster = FullCluster(clock, used_gpus=8)
    cluster.add_waiting()
    explanation = cluster.explain()
    assert explanation.outcome == "unplaceable"
    assert [why.message for why in explanation.why[:2]] == [
        "volcano does not ask about the pod while its own plugins reject every node; the extender has looked",
        "2 pods remain, each with rail0..rail3; the cluster has slots for 0",
    ]
    assert "nvidia.com/gpu on n1 is used by train/first-n1" in explanation.why[-1].message
    [outcome] = cluster.handlers.decider.gangs.check(clock.now)
    assert outcome.code == gang_tracker.UNPLACEABLE


@pytest.mark.parametrize("used_gpus", [0, 8])
def test_only_unplaced_pods_that_do_not_fit_are_explained_without_a_request(clock, used_gpus):
    cluster = FullCluster(clock, used_gpus)
    cluster.add_waiting()
    if used_gpus:
        cluster.pods.upsert(placing.pod("next-0", group="next", on="n1", schedulerName="volcano"))
    assert cluster.explain() is None


def test_a_pod_that_is_held_back_by_a_gate_is_not_explained(clock):
    cluster = FullCluster(clock, used_gpus=8)
    gated = views.PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    pod = placing.pod("next-0", group="next")
    cluster.pods.upsert(msgspec.structs.replace(pod, status=views.PodStatus(conditions=[gated])))
    turns.complete(cluster.handlers.decider.record_waiting_pods())
    clock.now = gang_tracker.WAITING_SECONDS
    turns.complete(cluster.handlers.decider.record_waiting_pods())
    assert cluster.explain() is None


def test_a_schedulers_request_replaces_the_extenders_own_explanation(clock):
    cluster = FullCluster(clock, used_gpus=8)
    cluster.add_waiting()
    body = {"Pod": msgspec.to_builtins(placing.pod("next-0", group="next")), "NodeNames": ["n1", "n2"]}
    turns.complete(cluster.handlers.kube.prioritize(json.dumps(body).encode()))
    assert "NotAsked" not in [why.code for why in cluster.explain().why]


def test_of_a_gang_that_fits_one_pod_of_a_kind_is_evaluated(clock):
    cluster = FullCluster(clock, used_gpus=0)
    score = engine.PlacementEngine.score
    with mock.patch.object(engine.PlacementEngine, "score", autospec=True, side_effect=score) as scored:
        cluster.add_waiting()
    assert scored.call_count == 1
