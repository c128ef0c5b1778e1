"""The state of a gang: what is continued while its pods are announced is what would be built again."""

import msgspec
from placing import (
    build_assumed_pod,
    build_cluster,
    build_request,
    change_pod,
    create_assumed_pods,
    leaves,
    pod,
)

from railwright.fabric import views
from railwright.fabric.placement.state import gang_status

LEAST = 12


class Gang:
    """A gang whose scheduler announces its pods, on nodes where another gang is announced too."""

    def __init__(self, *, least: int = LEAST, gpus: int = 8) -> None:
        self.pods = [pod(f"a-{index}", group="a", gpus=8 if index > 1 else gpus) for index in range(LEAST)]
        self.others = [pod(f"b-{index}", group="b") for index in range(4)]
        self.cluster = build_cluster(leaves(x=6, y=6), [*self.pods, *self.others], least={"train/a": least})
        self.assumed, self.nodes = create_assumed_pods(), list(self.cluster.nodes)

    def ask(self, one: views.Pod, **fields: object) -> gang_status.GangStatus:
        """Return the state for a request about a pod."""
        request = msgspec.structs.replace(build_request(one, self.nodes), **fields)
        return gang_status.build_status(request, self.cluster, self.assumed)

    def announce(self, one: views.Pod, on: str, **fields: object) -> None:
        self.assumed.assume(build_assumed_pod(one, on, **fields))

    def announce_unseen(self, one: views.Pod, on: str) -> None:
        self.assumed.assume_unseen(build_assumed_pod(one, on), "", 100)

    def see(self, one: views.Pod) -> None:
        self.assumed.see(one.metadata.uid, build_assumed_pod(one, "").requests)


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
