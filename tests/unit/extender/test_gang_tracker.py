"""Outcomes of gangs: waiting times, gangs that never fit, and placements."""

import json

import claimed
import devices
import extending
import msgspec
import placing
import pytest
from claimed import (
    add_slices,
    build_claim,
    build_claimed_node,
    build_claiming_pod,
    build_template,
    get_sink,
    name_devices,
)
from placing import LEAF, SPINE, build_leaves, build_pod, build_policy
from wording import texts

from extender import gang_tracker
from railwright.cluster import events
from railwright.fabric import views
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.reasons import codes, reason
from railwright.fabric.workloads import volcano

GANG = "train/g"
WHY = (reason.Reason(codes.PlacementCode.CAPACITY_NEVER, "the gang never fits: it needs 2 slots"),)


def messages(of):
    return tuple(notice.text for notice in of)


class Site(extending.Site):
    """Return a gang that waited in this process, with pods on these leaves."""

    def __init__(self, nodes, size, **placement):
        super().__init__(nodes, (), build_policy(domains=[LEAF, SPINE], **placement), now=0.0)
        self.peers = [build_pod(f"w-{rank}", group="g") for rank in range(size)]
        self.add_gang(self.peers, "g")
        assert self.look(after=0.0) == []

    def place(self, *where: str) -> None:
        for rank, to in enumerate(where):
            self.pods.upsert(build_pod(f"w-{rank}", group="g", on=to))

    def look(self, after: float = 1.0):
        self.now += after
        return [outcome.code for outcome in self.gangs.find_outcomes(self.now)]


def test_a_gang_placed_as_well_as_possible_is_reported_once():
    site = Site(build_leaves(a=4, b=4), 4)
    site.place("a-00", "a-01", "a-02", "a-03")
    (outcome,) = site.gangs.find_outcomes(1.0)
    assert (outcome.code, outcome.attained) == (overview_types.PLACED, 1.0)
    assert site.look() == []
    gang = site.explain("w-3").gang
    assert (gang.state, gang.leaves, gang.min_leaves, gang.why) == (overview_types.PLACED, 1, 1, ())


def test_a_gang_on_more_leaves_than_necessary_is_reported_as_spread():
    site = Site(build_leaves(a=4, b=4), 4, oversubscription=[8])
    site.place("a-00", "a-01", "a-02", "b-00")
    (outcome,) = site.gangs.find_outcomes(1.0)
    assert (outcome.code, outcome.attained) == (overview_types.SPREAD, 0.5), "of the best possible placement"
    gang = site.explain("w-0").gang
    assert (gang.state, gang.leaves, gang.min_leaves, gang.bandwidth) == (overview_types.SPREAD, 2, 1, 0.5)
    assert messages(gang.why) == texts(outcome.reasons)
    assert messages(gang.why)[0].startswith(
        "4 pods on 2 leaves (a in s-a 3, b in s-b 1) with 0.50 of full bandwidth (modelled)"
    )


def test_a_gang_on_the_fewest_possible_leaves_is_not_reported_as_spread():
    site = Site(build_leaves(a=3, b=3), 4, oversubscription=[8])
    waiting = site.explain("w-0").gang
    assert messages(waiting.why)[1] == ("4 pods remain; the largest leaf, a in s-a, has 3 slots; 2 leaves are needed")
    site.place("a-00", "a-01", "a-02", "b-00")
    (outcome,) = site.gangs.find_outcomes(1.0)
    assert (outcome.code, outcome.attained) == (overview_types.PLACED, 1.0)
    last = site.explain("w-3").gang
    assert (last.leaves, last.min_leaves, last.bandwidth < 1) == (2, 2, True)


def test_a_gang_placed_before_the_start_is_not_reported_until_it_loses_a_pod():
    peers = [build_pod(f"w-{rank}", group="g", on=f"a-0{rank}") for rank in range(2)]
    site = extending.Site(build_leaves(a=3), peers)
    assert site.gangs.find_outcomes(0.0) == []
    assert site.gangs.count_waiting(9.0) == (0, 0.0)
    site.pods.upsert(build_pod("w-2", group="g"))
    assert site.gangs.find_outcomes(10.0) == []
    assert site.gangs.count_waiting(12.0) == (1, 2.0)
    site.pods.upsert(build_pod("w-2", group="g", on="a-02"))
    assert [outcome.code for outcome in site.gangs.find_outcomes(13.0)] == [overview_types.PLACED]


def test_a_gang_that_waits_for_other_pods_is_not_reported():
    site = Site(build_leaves(a=4), 4)
    other = build_pod("other", on="a-00")
    site.pods.upsert(other)
    assert site.look(after=gang_tracker.WAITING_SECONDS + 1) == []
    waiting = site.explain("w-0").gang
    assert (waiting.state, waiting.placed) == (overview_types.WAITING, 0)
    assert "a-00 is used by train/other" in messages(waiting.why)[-1]
    site.pods.remove(other)
    site.place("a-00", "a-01", "a-02", "a-03")
    assert site.look() == [overview_types.PLACED]
    assert site.explain("w-0").gang.state == overview_types.PLACED, "it is computed now, not when the gang waited"


def test_a_gang_that_never_fits_is_reported_after_waiting_and_counted_once():
    site = Site(build_leaves(a=3), 4)
    assert site.explain("w-0").gang.state == overview_types.NEVER, "the explanation does not wait"
    assert site.look(after=gang_tracker.WAITING_SECONDS - 1) == []
    (outcome,) = site.gangs.find_outcomes(site.now + 1)
    assert (outcome.code, outcome.first.key, outcome.is_repeated) == (overview_types.NEVER, "train/w-0", False)
    assert site.gangs.count_waiting(60.0) == (1, 60.0), "it stays waiting"
    assert reason.join_texts(outcome.reasons) == (
        "the gang never fits: it needs 4 slots, and without any other pod the eligible nodes have 3"
    )
    assert site.look(after=30) == []
    (outcome,) = site.gangs.find_outcomes(site.now + gang_tracker.RECHECK_SECONDS)
    assert outcome.is_repeated


def test_a_gang_with_scheduling_gates_does_not_count_as_waiting():
    site = Site(build_leaves(a=3), 4)
    gated = views.PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    for peer in site.peers:
        site.pods.upsert(msgspec.structs.replace(peer, status=views.PodStatus(conditions=[gated])))
    assert site.look(after=gang_tracker.WAITING_SECONDS + 1) == []
    assert site.gangs.count_waiting(site.now + 2) == (1, 2.0)
    for peer in site.peers:
        site.pods.upsert(peer)
    assert site.look(after=gang_tracker.WAITING_SECONDS) == [overview_types.NEVER]


def test_the_number_of_tracked_gangs_is_bounded(monkeypatch):
    monkeypatch.setattr(gang_tracker, "MAX_TRACKED", 3)
    site = extending.Site(build_leaves(a=2), [build_pod(f"p{number}", group=f"g{number}") for number in range(5)])
    site.gangs.find_outcomes(1.0)
    assert site.gangs.count_waiting(1.0)[0] == 3


def test_events_are_on_the_pod_group_if_there_is_one_otherwise_on_the_pod():
    cluster, posting = cluster_state.ClusterState(), extending.Poster()
    group = msgspec.convert({"metadata": {"namespace": "train", "name": "g", "uid": "u-g"}}, views.PodGroup)
    cluster.sizes.upsert(volcano.POD_GROUPS, group)
    for gang in (GANG, "train/other"):
        gang_tracker.post_event(
            posting, cluster, gang_tracker.Outcome(overview_types.NEVER, gang, read_pod("w-0"), WHY)
        )
    assert [note[0] for note in posting.posted] == [
        events.InvolvedObject("PodGroup", "scheduling.volcano.sh/v1beta1", "train", "g", "u-g"),
        events.InvolvedObject("Pod", "v1", "train", "w-0", "uid-w-0"),
    ]
    assert {note[1:] for note in posting.posted} == {
        (True, "GangNeverFits", "CapacityNever: the gang never fits: it needs 2 slots")
    }
    for forget in (
        lambda: cluster.sizes.remove(volcano.POD_GROUPS, group),
        lambda: cluster.sizes.replace(volcano.POD_GROUPS, []),
    ):
        cluster.sizes.replace(volcano.POD_GROUPS, [group])
        assert cluster.sizes.find_pod_group(GANG) is not None
        forget()
        assert cluster.sizes.find_pod_group(GANG) is None


def read_pod(name: str):
    state = placing.build_cluster([], [build_pod(name)])
    return state.pods[build_pod(name).metadata.uid]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (overview_types.NEVER, ["GangNeverFits"]),
        (overview_types.SPREAD, ["GangSpread"]),
        (overview_types.PLACED, []),
    ],
)
def test_a_gang_that_never_fits_or_is_spread_gets_an_event_and_a_placed_gang_none(state, said):
    posting = extending.Poster()
    gang_tracker.post_event(
        posting, cluster_state.ClusterState(), gang_tracker.Outcome(state, GANG, read_pod("w-0"), WHY)
    )
    assert [reason for _, _, reason, _ in posting.posted] == said


OLD, NEW = (json.dumps({"policy": f"sha256:{letter * 64}", "fabric": "roce"}) for letter in "ab")


def admit(site, *records: str) -> None:
    for rank, record in enumerate(records):
        given = {"railwright.io/injection": record} if record else {}
        site.peers[rank] = build_pod(f"w-{rank}", group="g", annotations=given)
        site.pods.upsert(site.peers[rank])


def test_a_gang_admitted_under_two_versions_of_the_policy_is_reported_once():
    site = Site(build_leaves(a=4), 4)
    admit(site, OLD, OLD, NEW, "")
    (outcome,) = site.gangs.find_outcomes(1.0)
    assert (outcome.code, outcome.first.key) == (gang_tracker.MIXED, "train/w-0")
    assert reason.join_texts(outcome.reasons) == (
        "3 pods were admitted under 2 versions of the policy: 2 under sha256:aaaaaaaaaaaa (w-0, w-1); 1 under "
        "sha256:bbbbbbbbbbbb (w-2); their injected settings may differ; recreate the pods that are not under the "
        "current version, sha256:test"
    )
    assert messages(site.explain("w-0").gang.why)[-1:] == texts(outcome.reasons), (
        "it delays no pod, so why the gang waits comes first"
    )
    assert site.look() == []
    admit(site, OLD, NEW, NEW, NEW)
    assert site.look() == [gang_tracker.MIXED], "another mixture"
    admit(site, NEW, NEW, NEW, NEW)
    assert site.look() == []
    assert [why.code for why in site.explain("w-0").gang.why] == [codes.PlacementCode.FITS_NOW]


@pytest.mark.parametrize("record", ["", "{", '{"policy": 1}', json.dumps({"policy": "x" * 100})])
def test_a_pod_with_an_invalid_record_does_not_count_as_admitted_under_another_policy(record):
    site = Site(build_leaves(a=2), 2)
    admit(site, record, OLD)
    assert site.look() == []


# --- why a gang waits -----------------------------------------------------------------------------------------


class SiteWithClaims(extending.Site):
    """Two nodes with rails in claims; another pod holds rail 1 of the first."""

    def __init__(self) -> None:
        super().__init__([build_claimed_node(name, "a") for name in ("n1", "n2")], (), claimed.policy(), now=0.0)
        name_devices(self.state.cluster)
        add_slices(self.state.cluster, "n1", "n2")
        get_sink(self.state, "ResourceClaimTemplate").upsert(build_template("t", (0, 1)))
        held = build_claim("held", (1,), gpus=1, on="n1", pod_uid="uid-holder")
        get_sink(self.state, "ResourceClaim").upsert(devices.read_claim(held))
        self.pods.upsert(build_claiming_pod("holder", on="n1", templates=(), claims=("held",)))


def test_a_gang_that_waits_for_its_rails_is_explained_with_rail_and_holder():
    site = SiteWithClaims()
    for rank in range(2):
        site.pods.upsert(build_claiming_pod(f"g-{rank}", group="g"))
    why = (
        "2 pods remain, each with rail0, rail1; the cluster has slots for 1",
        "1 node: rail1 has 0 of 1 free, 1 needed",
        "rail1 on n1 is used by train/holder",
    )
    explained = site.explain("g-0")
    assert (explained.gang.state, messages(explained.gang.why)) == (overview_types.WAITING, why)
    rows = {row.node: row for row in explained.nodes}
    assert "rail1 has 0 of 1 free, 1 needed, held by train/holder" in str(rows["n1"])


@pytest.mark.parametrize(
    ("used", "why"),
    [
        (
            ("n1", "n2"),
            (
                "2 pods remain, each with rail0..rail3; the cluster has slots for 1",
                "2 nodes: nvidia.com/gpu has 0 of 8 free, 8 needed",
                "nvidia.com/gpu on n1 is used by train/first-n1; nvidia.com/gpu on n2 is used by train/first-n2",
            ),
        ),
        (("n2",), ("the 2 remaining pods fit now; the scheduler has not placed them",)),
    ],
)
def test_without_domains_a_gang_that_waits_for_gpus_is_explained_with_resource_and_holder(used, why):
    nodes = [placing.build_node(name, "", rails_each=16) for name in ("n1", "n2", "n3")]
    site = extending.Site(
        nodes, [build_pod(f"first-{name}", on=name) for name in used], build_policy(domains=[]), now=0.0
    )
    for rank in range(2):
        site.pods.upsert(build_pod(f"next-{rank}", group="next"))
    assert messages(site.explain("next-0").gang.why) == why
