"""Outcomes of gangs, from the state of the cluster and a clock of the test."""

import json

import extending
import msgspec
import pytest
from placing import LEAF, SPINE, leaves, node, pod, policy
from wording import texts

from extender import gang_events, gang_tracker
from railwright.cluster import events, resources, sources
from railwright.fabric import views
from railwright.fabric.placement.explain import placement_result
from railwright.fabric.reasons import codes, reason, rendering
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


def test_a_half_bound_gang_has_no_outcome_yet():
    site = Site(leaves(a=4), 4)
    site.place("a-00", "a-01")
    assert site.look() == []
    assert site.explain("w-0").outcome == "placeable"


def test_gangs_wait_until_all_of_their_pods_are_bound():
    site = Site(leaves(a=4), 4)
    assert site.verbs.decider.gangs.count_waiting(5.0) == (0, 0.0), "nobody has asked"
    site.place("a-00", "a-01", "a-02")
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


def test_the_explanation_of_a_scored_node_names_the_holder_of_a_missing_rail():
    site = Site(leaves(a=2), 1)
    site.state.cluster.upsert_pod(pod("llm-3", gpus=0, on="a-01"))
    site.ask(0)
    row = next(row for row in site.explain("w-0").nodes if row["node"] == "a-01")
    assert row["rails"][2].message == "rail2 has 0 of 1 free, held by train/llm-3"
    assert row["leaf"] == "a in s-a"


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


class Posting:
    """Collects the Events that would be queued."""

    def __init__(self):
        self.notes = []

    def post(self, involved, *, warning, reason, message):
        self.notes.append((involved, warning, reason, message))


def test_events_go_to_the_pod_group_and_else_to_the_pod():
    groups, posting = gang_events.PodGroups(), Posting()
    watch = sources.WatchSpec(kind=resources.GANG_SIZES["podgroups.scheduling.volcano.sh"], sink=Sink())
    beside = groups.add_recorder(watch)
    meta = {"namespace": "train", "name": "g", "uid": "u-g"}
    beside.sink.upsert(msgspec.convert({"metadata": meta}, views.PodGroup))
    assert len(watch.sink.seen) == 1, "the sink behind it hears it, too"
    tell = gang_events.build_sink(posting, groups)
    for gang in (GANG, "train/other"):
        tell(gang_tracker.Outcome(gang_tracker.UNPLACEABLE, gang, "train", "w-0", "u-0", WHY, 0.0))
    assert [note[0] for note in posting.notes] == [
        events.Involved("PodGroup", "scheduling.volcano.sh/v1beta1", "train", "g", "u-g"),
        events.Involved("Pod", "v1", "train", "w-0", "u-0"),
    ]
    assert {note[1:] for note in posting.notes} == {
        (True, "GangUnplaceable", "CapacityInsufficient: 2 pods remain; the cluster has slots for 1")
    }
    beside.sink.remove(msgspec.convert({"metadata": meta}, views.PodGroup))
    assert groups.find(GANG) is None


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
    posting = Posting()
    gang_events.build_sink(posting, gang_events.PodGroups())(
        gang_tracker.Outcome(word, GANG, "train", "w-0", "u", WHY, bandwidth)
    )
    assert [(reason, warning) for _, warning, reason, _ in posting.notes] == ([said] if said else [])


class Sink:
    def __init__(self):
        self.seen = []

    def replace(self, objects):
        self.seen = list(objects)

    def upsert(self, obj):
        self.seen.append(obj)

    def remove(self, _obj):
        self.seen.clear()


def test_a_pod_with_the_name_of_a_gang_is_not_taken_for_it():
    site = Site(leaves(a=3, b=3), 4)
    site.place("a-00", "a-01", "a-02", "b-00")
    site.look()
    alone = json.loads(msgspec.json.encode(pod("g", gpus=1, rails=0)))
    turns.complete(site.verbs.kube.prioritize(json.dumps({"Pod": alone, "NodeNames": ["b-01", "b-02"]}).encode()))
    assert site.explain("w-3").placement, "still known"


def test_a_gang_is_checked_again_once_its_networks_are_known():
    site = Site(leaves(a=2), 2)
    given = policy(domains=[LEAF, SPINE])
    roce = given.document.fabrics["roce"]
    rails = tuple(msgspec.structs.replace(rail, resource=None, network=f"prod/{rail.name}") for rail in roce.rails)
    fabrics = {"roce": msgspec.structs.replace(roce, rails=rails)}
    given = msgspec.structs.replace(given, document=msgspec.structs.replace(given.document, fabrics=fabrics))
    state_ = site.state
    verbs = extending.Extender(state_, lambda: given, clock=lambda: 0.0)
    site.verbs = verbs
    site.ask(0)
    assert not verbs.decider.gangs.find("train/g", "").request.needs
    for rail in roce.rails:
        state_.pools["prod", rail.name] = rail.resource
    site.ask(0)
    assert len(verbs.decider.gangs.find("train/g", "").request.needs) == len(roce.rails)


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
