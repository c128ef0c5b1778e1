"""The state of a gang: what is continued while its pods are announced is what would be built again."""

import random

import msgspec
import pytest
from placing import (
    build_assumed_pod,
    build_cluster,
    build_pod_group,
    build_request,
    change_pod,
    create_assumed_pods,
    leaves,
    pod,
)

from railwright.fabric import views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import gang_status
from railwright.fabric.workloads import volcano

LEAST = 12


class Gang:
    """A gang whose scheduler announces its pods, on nodes where another gang is announced too."""

    def __init__(self, *, least: int = LEAST, gpus: int = 8) -> None:
        self.pods = [pod(f"a-{index}", group="a", gpus=8 if index > 1 else gpus) for index in range(LEAST)]
        self.others = [pod(f"b-{index}", group="b") for index in range(4)]
        self.cluster = build_cluster(leaves(x=6, y=6), [*self.pods, *self.others], least={"train/a": least})
        self.assumed, self.nodes = create_assumed_pods(), list(self.cluster.nodes)
        self.statuses = gang_status.GangStatuses(self.cluster, self.assumed)

    def ask(self, one: views.Pod, **fields: object) -> gang_status.GangStatus:
        """Return the state for a request about a pod, after a comparison with one that is built."""
        request = build_request(one, self.nodes)
        offer = scheduling_request.NodeOffer(idle=request.requests)
        request = msgspec.structs.replace(request, offers=dict.fromkeys(self.nodes, offer), **fields)
        status = self.statuses.build(request, self.assumed)
        assert status == gang_status.build_status(request, self.cluster, self.assumed)
        return status

    def announce(self, one: views.Pod, on: str, **fields: object) -> None:
        self.assumed.assume(build_assumed_pod(one, on, **fields))

    def announce_unseen(self, one: views.Pod, on: str) -> None:
        self.assumed.assume_unseen(build_assumed_pod(one, on), "", 100)

    def see(self, one: views.Pod) -> None:
        self.assumed.see(one.metadata.uid, build_assumed_pod(one, "").requests)


def change(gang: Gang, chance: random.Random) -> None:
    """Announce pods of the gang, forget some, or change something else."""
    one, other, node = (chance.choice(row) for row in (gang.pods, gang.others, gang.nodes))
    terminating = change_pod(one, metadata={"deletion_timestamp": "2026-11-28T00:00:00Z"})
    rare = (
        lambda: gang.announce(other, node),
        lambda: gang.announce(one, node, requests={"cpu": 1000}),
        lambda: gang.announce_unseen(chance.choice((one, other)), node),
        lambda: [gang.see(unseen) for unseen in (*gang.pods, *gang.others)],
        lambda: gang.assumed.end_session("", 1.0),
        lambda: gang.cluster.upsert_pod(change_pod(one, spec={"node_name": node})),
        lambda: gang.cluster.upsert_pod(one),
        lambda: gang.cluster.remove_pod(one.metadata.uid),
        lambda: gang.cluster.upsert_pod(terminating),
        lambda: gang.cluster.upsert_size(
            volcano.POD_GROUPS, build_pod_group("train", "a", chance.choice((4, LEAST, 14)))
        ),
    )
    frequent = (lambda: gang.announce(one, node), lambda: gang.assumed.forget(one.metadata.uid))
    chance.choices((*frequent, chance.choice(rare)), (6, 3, 1))[0]()


@pytest.mark.parametrize(
    ("least", "gpus"),
    [(LEAST, 8), (14, 8), (LEAST, 0), (LEAST, 4)],
    ids=["equal", "incomplete", "launchers", "smaller"],
)
def test_a_continued_state_is_that_which_is_built(least, gpus):
    for seed in range(60):
        gang, chance = Gang(least=least, gpus=gpus), random.Random(seed)  # noqa: S311 - a test has to repeat
        for _ in range(20):
            waiting = [one for one in gang.pods if gang.assumed.get(one.metadata.uid) is None]
            gang.ask(chance.choice(waiting if waiting and chance.random() < 0.9 else gang.pods))
            change(gang, chance)


def test_a_bound_pod_counts_as_waiting_for_its_own_request_only():
    gang = Gang()
    gang.cluster.upsert_pod(change_pod(gang.pods[0], spec={"node_name": gang.nodes[0]}))
    assert not gang.ask(gang.pods[0]).placed
    assert len(gang.ask(gang.pods[1]).placed) == 1


def test_announcements_of_unseen_pods_count():
    gang = Gang()
    gang.announce_unseen(gang.others[0], gang.nodes[0])
    gang.ask(gang.pods[0])
    gang.see(gang.others[0])
    gang.announce_unseen(gang.pods[1], gang.nodes[1])
    assert len(gang.ask(gang.pods[0]).placed) == 1


def test_smaller_pods_plan_by_the_largest():
    gang = Gang(gpus=4)
    assert gang.ask(gang.pods[0]).planning_request == gang.ask(gang.pods[1]).planning_request


def test_a_rank_that_the_cluster_does_not_show_counts_for_its_request_only():
    gang = Gang()
    rank = msgspec.structs.replace(build_request(gang.pods[0], ()).rank, index=20)
    for one, fields in ((gang.pods[0], {"rank": rank}), (gang.pods[1], {}), (gang.pods[0], {"rank": rank})):
        ranks = gang.ask(one, **fields).slot_ranks
        assert ranks[-1].index == (20 if fields else LEAST - 1)


def test_an_announced_gang_is_visited_once(monkeypatch):
    gang, built, build_status = Gang(), [], gang_status.build_status
    monkeypatch.setattr(gang_status, "build_status", lambda *given: built.append(given) or build_status(*given))
    for one, node in zip(gang.pods, gang.nodes, strict=True):
        gang.ask(one)
        gang.announce(one, node)
    assert len(built) == 1 + len(gang.pods)  # the first state, and those of the comparisons
