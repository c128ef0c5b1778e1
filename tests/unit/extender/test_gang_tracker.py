"""Outcomes of gangs: placed, waiting unasked, and tried by Volcano in one HyperNode after the other."""

import json
from unittest import mock

import claimed
import devices
import extending
import msgspec
import placing
import pytest
import reporting
from claimed import (
    FABRIC,
    add_slices,
    build_claim,
    build_node,
    build_pod,
    build_template,
    get_sink,
    name_devices,
)
from placing import LEAF, SPINE, change_fabric, leaves, node, pod, policy
from wording import texts

from extender import gang_events, gang_tracker
from extender import state as states
from railwright.cluster import events, resources, sinks, sources
from railwright.fabric import views
from railwright.fabric.placement import engine
from railwright.fabric.placement.explain import placement_result
from railwright.fabric.reasons import codes, reason, rendering
from railwright.fabric.workloads import volcano
from railwright.serving import turns

GANG = "train/g"
WHY = (reason.make(codes.Code.CAPACITY_INSUFFICIENT, pods=2, slots_needed=2, slots=1, rails=()),)


def messages(of):
    return tuple(notice.message for notice in of)


class Site(extending.Site):
    """A gang of some size over leaves, for kube-scheduler."""

    def __init__(self, nodes, size, **placement):
        super().__init__(nodes, (), policy(domains=[LEAF, SPINE], **placement), now=0.0)
        self.peers = [pod(f"w-{rank}", group="g") for rank in range(size)]
        self.add_gang(self.peers, "g")

    def ask(self, rank: int) -> None:
        self.score(self.peers[rank])

    def bind(self, rank: int, to: str) -> None:
        self.state.cluster.upsert_pod(pod(f"w-{rank}", group="g", on=to))

    def place(self, *where: str) -> None:
        for rank, to in enumerate(where):
            self.score(self.peers[rank], [name for name in self.names if not self.state.cluster.get_used(name)])
            self.bind(rank, to)

    def look(self, after: float = 1.0):
        self.now += after
        return [outcome.code for outcome in self.verbs.decider.gangs.check(self.now)]


def test_a_gang_placed_as_planned_is_reported_as_compact_once():
    site = Site(leaves(a=4, b=4), 4)
    site.place("a-00", "a-01", "a-02", "a-03")
    (outcome,) = site.verbs.decider.gangs.check(1.0)
    assert (outcome.code, outcome.attained) == (placement_result.COMPACT, 1.0)
    assert site.look() == []
    explanation = site.explain("w-3")
    assert explanation.outcome == "compact"
    assert explanation.placement["leaves"] == {"a in s-a": 4}
    assert explanation.placement["leaves_used"] == explanation.placement["leaves_possible"] == 1


def test_a_gang_placed_off_its_plan_is_reported_as_spread():
    site = Site(leaves(a=4, b=4), 4, oversubscription=[8])
    site.place("a-00", "a-01", "a-02", "b-00")
    (outcome,) = site.verbs.decider.gangs.check(1.0)
    assert (outcome.code, outcome.attained) == (placement_result.SPREAD, 0.5), "of the best possible placement"
    explanation = site.explain("w-0")
    assert explanation.outcome == "spread"
    assert explanation.placement["leaves_possible"] == 1
    assert explanation.placement["bandwidth"] == 0.5
    assert explanation.placement["outside_plan"] == ("w-3 on b-00 (b in s-b)",)


def test_two_leaves_that_are_the_fewest_possible_are_compact():
    site = Site(leaves(a=3, b=3), 4, oversubscription=[8])
    site.place("a-00", "a-01", "a-02", "b-00")
    (outcome,) = site.verbs.decider.gangs.check(1.0)
    assert (outcome.code, outcome.attained, outcome.bandwidth < 1) == (placement_result.COMPACT, 1.0, True)
    assert messages(site.explain("w-0").why)[0] == (
        "4 pods remain; the largest leaf at 0.38 of the bandwidth, a in s-a, has 3 slots; 2 leaves is the minimum"
    )
    last = site.explain("w-3")
    assert (last.leaves_used, last.min_leaves) == (2, 2)


def test_gangs_wait_until_all_of_their_pods_are_bound():
    site = Site(leaves(a=4), 4)
    assert site.verbs.decider.gangs.count_waiting(5.0) == (0, 0.0), "nobody has asked"
    site.place("a-00", "a-01", "a-02")
    assert site.look() == []
    assert site.explain("w-0").outcome == "placeable"
    assert site.verbs.decider.gangs.count_waiting(5.0) == (1, 5.0)
    site.place("a-00", "a-01", "a-02", "a-03")
    assert site.look() == [placement_result.COMPACT]
    assert site.verbs.decider.gangs.count_waiting(5.0) == (0, 0.0)


def test_a_gang_that_does_not_fit_is_reported_after_waiting_and_counted_once():
    site = Site(leaves(a=3), 4)
    site.ask(0)
    assert site.explain("w-0").outcome == "unplaceable", "the explanation does not wait"
    assert site.look(after=gang_tracker.WAITING_SECONDS - 1) == []
    (outcome,) = site.verbs.decider.gangs.check(site.now + 1)
    assert (outcome.code, outcome.pod, outcome.is_repeated) == (gang_tracker.UNPLACEABLE, "w-0", False)
    assert site.verbs.decider.gangs.count_waiting(60.0) == (1, 60.0), "it stays waiting"
    assert rendering.render_all(outcome.reasons) == (
        "the gang never fits: it needs 4 slots, and without any other pod the eligible nodes have 3; "
        "4 pods remain, each with rail0..rail3; the cluster has slots for 3"
    )
    assert site.look(after=30) == []
    (outcome,) = site.verbs.decider.gangs.check(site.now + gang_tracker.RECHECK_SECONDS)
    assert outcome.is_repeated


def test_a_scheduler_that_tries_a_small_part_of_the_cluster_leaves_no_event():
    """Volcano tries each HyperNode; what does not fit into one may fit into the next."""
    site = Site(leaves(a=3, b=8), 4)
    site.score(site.peers[0], ["a-00", "a-01", "a-02"])
    assert site.look(after=gang_tracker.WAITING_SECONDS + 1) == []


def test_a_gang_that_filter_refuses_everywhere_is_checked_after_its_pods_have_waited():
    site = Site([node("bare", "a", rails_each=0)], 2, rails="required")
    assert site.filter(site.peers[0]) == []
    assert site.explain("w-0").outcome == "unplaceable"
    assert site.look(after=1) == []
    assert site.look(after=gang_tracker.WAITING_SECONDS) == [gang_tracker.UNPLACEABLE]


def test_a_node_that_filter_let_pass_is_shown_without_a_score():
    site = Site([node("bare", "a", rails_each=0), *leaves(a=1)], 1, rails="required")
    assert site.filter(site.peers[0]) == ["a-00"]
    explanation = site.explain("w-0")
    assert explanation.outcome == "placeable"
    assert [row["node"] for row in explanation.nodes] == ["a-00", "bare"]
    assert explanation.nodes[0]["reason"].message == "feasible; the scheduler requested no score"


def test_a_filter_call_for_unknown_pods_causes_no_event():
    site = Site([node("bare", "a", rails_each=0)], 2, rails="required")
    for gang_pod in site.peers:
        site.state.cluster.remove_pod(gang_pod.metadata.uid)
    site.filter(site.peers[0])
    assert site.look(after=gang_tracker.WAITING_SECONDS + 1) == []


def test_a_gang_that_fits_later_is_assessed_by_its_placement():
    site = Site(leaves(a=3), 4)
    site.ask(0)
    assert site.look(after=gang_tracker.WAITING_SECONDS + 1) == [gang_tracker.UNPLACEABLE]
    site.state.cluster.upsert_node(node("a-03", "a", spine="s-a"))
    site.place("a-00", "a-01", "a-02", "a-03")
    assert site.look() == [placement_result.COMPACT]


def test_the_number_of_tracked_gangs_is_bounded():
    site = Site(leaves(a=2), 1)
    for number in range(gang_tracker.MAX_TRACKED + 20):
        site.peers = [pod("w-0", group=f"g{number}")]
        site.ask(0)
    assert len(site.verbs.decider.gangs._gangs) == gang_tracker.MAX_TRACKED


def test_events_go_to_the_pod_group_and_else_to_the_pod():
    groups, posting, seen, removed = gang_events.PodGroups(), extending.Poster(), [], []
    watch = sources.WatchSpec(
        kind=resources.GANG_SIZES["podgroups.scheduling.volcano.sh"],
        sink=sinks.Functions(seen.extend, seen.append, removed.append),
    )
    beside = groups.add_recorder(watch)
    meta = {"namespace": "train", "name": "g", "uid": "u-g"}
    beside.sink.upsert(msgspec.convert({"metadata": meta}, views.PodGroup))
    assert len(seen) == 1, "the sink behind it hears it, too"
    tell = gang_events.build_sink(posting, groups)
    for gang in (GANG, "train/other"):
        tell(gang_tracker.Outcome(gang_tracker.UNPLACEABLE, gang, "train", "w-0", "u-0", WHY, 0.0))
    assert [note[0] for note in posting.posted] == [
        events.Involved("PodGroup", "scheduling.volcano.sh/v1beta1", "train", "g", "u-g"),
        events.Involved("Pod", "v1", "train", "w-0", "u-0"),
    ]
    assert {note[1:] for note in posting.posted} == {
        (True, "GangUnplaceable", "CapacityInsufficient: 2 pods remain; the cluster has slots for 1")
    }
    group = msgspec.convert({"metadata": meta}, views.PodGroup)
    for forget in (lambda: beside.sink.remove(group), lambda: beside.sink.replace([])):
        beside.sink.replace([group])
        assert groups.find(GANG) is not None
        forget()
        assert groups.find(GANG) is None
    assert removed == [group]


@pytest.mark.parametrize(
    ("word", "bandwidth", "said"),
    [
        (placement_result.SPREAD, 1.0, ("GangSpread", True)),
        (placement_result.DEGRADED, 0.5, ("GangDegraded", True)),
        (placement_result.COMPACT, 0.5, ("GangLimited", False)),
        (placement_result.COMPACT, 1.0, None),
    ],
)
def test_only_outcomes_that_need_attention_become_events(word, bandwidth, said):
    posting = extending.Poster()
    gang_events.build_sink(posting, gang_events.PodGroups())(
        gang_tracker.Outcome(word, GANG, "train", "w-0", "u", WHY, bandwidth)
    )
    assert [(reason, warning) for _, warning, reason, _ in posting.posted] == ([said] if said else [])


def test_a_pod_with_the_name_of_a_gang_is_not_taken_for_it():
    site = Site(leaves(a=3, b=3), 4)
    site.place("a-00", "a-01", "a-02", "b-00")
    site.look()
    site.score(pod("g", gpus=1, rails=0), ["b-01", "b-02"])
    assert site.explain("w-3").placement, "still known"


def test_a_gang_is_checked_again_once_its_networks_are_known():
    site = Site(leaves(a=2), 2)
    given = policy(domains=[LEAF, SPINE])
    rails = given.document.fabrics["roce"].rails
    bare = [msgspec.structs.replace(rail, resource=None, network=f"prod/{rail.name}") for rail in rails]
    site.policy = change_fabric(given, rails=tuple(bare))
    site.ask(0)
    assert not site.verbs.decider.gangs.find("train/g", "").request.needs
    for rail in rails:
        site.state.pools["prod", rail.name] = rail.resource
    site.ask(0)
    assert len(site.verbs.decider.gangs.find("train/g", "").request.needs) == len(rails)


OLD, NEW = (json.dumps({"policy": f"sha256:{letter * 64}", "fabric": "roce"}) for letter in "ab")


def admit(site, *records: str) -> None:
    for rank, record in enumerate(records):
        given = {"railwright.io/injection": record} if record else {}
        site.peers[rank] = pod(f"w-{rank}", group="g", annotations=given)
        site.state.cluster.upsert_pod(site.peers[rank])


def test_a_gang_admitted_under_two_versions_of_the_policy_is_reported_once():
    site = Site(leaves(a=4), 4)
    admit(site, OLD, OLD, NEW, "")
    site.ask(0)
    (outcome,) = site.verbs.decider.gangs.check(1.0)
    assert (outcome.code, outcome.pod) == (gang_tracker.MIXED, "w-0")
    assert rendering.render_all(outcome.reasons) == (
        "3 pods were admitted under 2 versions of the policy: 2 under sha256:aaaaaaaaaaaa (w-0, w-1); 1 under "
        "sha256:bbbbbbbbbbbb (w-2); their injected settings may differ: recreate the pods that are not under the "
        "current version, sha256:test"
    )
    assert messages(site.explain("w-0").why) == texts(outcome.reasons)
    assert site.look() == []
    admit(site, OLD, NEW, NEW, NEW)
    assert site.look() == [gang_tracker.MIXED], "another mixture"
    admit(site, NEW, NEW, NEW, NEW)
    assert site.look() == []
    assert site.explain("w-0").why == ()


@pytest.mark.parametrize("record", ["", "{", '{"policy": 1}', json.dumps({"policy": "x" * 100})])
def test_an_invalid_record_is_not_a_policy_version(record):
    site = Site(leaves(a=2), 2)
    admit(site, record, OLD)
    site.ask(0)
    assert site.look() == []


# --- gangs that wait, about which no scheduler asks -----------------------------------------------------------


SAME_RAILS = (
    "all pods of the gang take rail0, rail1 (claims.gangRails: same), also two of them on one node; "
    "other free rails of a node do not count"
)


@pytest.fixture
def clock():
    return reporting.Clock()


def wait(handlers, clock):
    """Let the extender look for waiting pods now, and after a gang has waited long enough to be explained."""
    turns.complete(handlers.decider.record_waiting_pods())
    clock.now = gang_tracker.WAITING_SECONDS
    turns.complete(handlers.decider.record_waiting_pods())


@pytest.fixture
def state():
    state = states.State(assume_seconds=30)
    state.cluster.replace_nodes([build_node(name, "a") for name in ("n1", "n2")])
    name_devices(state.cluster)
    add_slices(state.cluster, "n1", "n2")
    get_sink(state, "ResourceClaimTemplate").upsert(build_template("t", (0, 1)))
    states.Claims(state).upsert(devices.read_claim(build_claim("held", (1,), gpus=1, on="n1", pod_uid="uid-holder")))
    states.Pods(state).replace([build_pod("holder", on="n1", templates=(), claims=("held",))])
    return state


@pytest.fixture
def handlers(state, clock):
    return extending.Extender(state, claimed.policy, clock=clock)


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
    wait(handlers, clock)
    [outcome] = handlers.decider.gangs.check(clock.now)
    texts = [rendering.render(why) for why in outcome.reasons]
    assert texts[1] == SAME_RAILS
    assert "rail0 on n2 is used by train/g-0" in texts[-1]


def test_a_pod_that_a_scheduler_asked_about_is_not_explained_again(state, handlers, clock):
    add_gang(state)
    handlers.kube.filter(extending.build_body(build_pod("g-0", group="g"), ["n2"]))
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
        wait(self.handlers, self.clock)

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
    wait(cluster.handlers, clock)
    assert cluster.explain() is None


def test_a_schedulers_request_replaces_the_extenders_own_explanation(clock):
    cluster = FullCluster(clock, used_gpus=8)
    cluster.add_waiting()
    body = extending.build_body(placing.pod("next-0", group="next"), ["n1", "n2"])
    turns.complete(cluster.handlers.kube.prioritize(body))
    assert "NotAsked" not in [why.code for why in cluster.explain().why]


def test_of_a_gang_that_fits_one_pod_of_a_kind_is_evaluated(clock):
    cluster = FullCluster(clock, used_gpus=0)
    score = engine.PlacementEngine.score
    with mock.patch.object(engine.PlacementEngine, "score", autospec=True, side_effect=score) as scored:
        cluster.add_waiting()
    assert scored.call_count == 1


# --- gangs that Volcano tries in one HyperNode after the other ------------------------------------------------


LEAVES = {"a": 3, "b": 4, "c": 5}
HARD = views.NetworkTopology("hard")
CONSTRAINTS = {
    "whole gang": {"network_topology": HARD},
    "parts": {"sub_group_policy": [views.SubGroup(HARD)]},
    "parts without a topology": {"sub_group_policy": [views.SubGroup()]},
}


class Confined(extending.Site):
    """Leaves of some nodes, and a gang that Volcano tries in one after the other."""

    def __init__(self, size: int, **constraint: object) -> None:
        super().__init__(placing.leaves(**LEAVES), (), placing.policy(domains=[placing.LEAF]))
        self.gang = [placing.pod(f"job-worker-{rank}", group="g") for rank in range(size)]
        self.add_gang(self.gang, "g")
        self.constrain(**constraint)
        self.close("")

    def constrain(self, **constraint: object) -> None:
        group = placing.build_pod_group("train", "g", len(self.gang))
        spec = msgspec.structs.replace(group.spec, **constraint)
        self.state.cluster.upsert_size(volcano.POD_GROUPS, msgspec.structs.replace(group, spec=spec))

    def ask(self, leaf: str, rank: int = 0) -> None:
        """Ask about a pod on the nodes of a leaf."""
        scalars = {"ScalarResources": {placing.GPU: 8000, **dict.fromkeys(placing.RESOURCES, 1000)}}
        idle = {"MilliCPU": 128000, "Memory": 2 << 40, **scalars}
        nodes = [{"Name": name, "Idle": idle, "Allocatable": idle} for name in self.names if name.startswith(leaf)]
        self.ask_volcano("prioritize", {"task": extending.build_task(self.gang[rank]), "nodes": nodes})

    def explain(self):
        return self.verbs.decider.explain("train", self.gang[0].metadata.name)

    def bind(self, leaf: str) -> None:
        """Show the gang's pods bound to the first nodes of a leaf."""
        for rank, peer in enumerate(self.gang):
            self.pods.upsert(placing.change_pod(peer, spec={"node_name": f"{leaf}-0{rank}"}))

    def list_explained(self) -> set[str]:
        """Return the leaves of the explained nodes."""
        return {row["node"].partition("-")[0] for row in self.explain().nodes}


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_while_a_gang_waits_the_largest_leaf_is_explained(constraint):
    site = Confined(6, **constraint)
    for leaf in ("a", "c", "b"):
        site.ask(leaf)
    assert site.list_explained() == {"c"}
    [why] = site.explain().why
    assert (why.code, why.parameters["slots"]) == ("CapacityNotOffered", 5)


def test_the_leaf_that_volcano_took_is_explained_whichever_it_tried_last():
    site = Confined(3, network_topology=HARD)
    for leaf in LEAVES:
        site.ask(leaf)
    site.bind("b")
    assert site.list_explained() == {"b"}
    assert site.explain().leaves_planned == ["b"]


def test_without_a_constraint_the_last_request_is_explained():
    site = Confined(3, network_topology=HARD)
    site.constrain()
    for leaf in LEAVES:
        site.ask(leaf)
    assert site.list_explained() == {"c"}
    site.ask("a")
    assert site.list_explained() == {"a"}


def test_a_leaf_that_was_tried_after_the_one_taken_is_no_reason():
    """Volcano may go on with a leaf of the same HyperNode, which the rest of the gang does not fit."""
    site = Confined(4, sub_group_policy=[views.SubGroup(HARD)])
    site.ask("b")
    assert site.explain().complete
    site.state.assumed.assume(placing.build_assumed_pod(site.gang[1], "b-00"))
    site.ask("b-01", rank=2)
    assert [why.code for why in site.explain().why] == ["CapacityNotOffered"], "while the gang waits"
    site.bind("b")
    assert site.explain().why == ()
