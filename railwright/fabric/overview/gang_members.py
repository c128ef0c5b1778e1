"""Lists the gangs of opted-in pods and the members of each: their ranks and nodes, and a colour for each gang."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric.overview import opted_in_pods, overview_types
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info
from railwright.fabric.workloads import membership

MAX_GANGS = 1000  # shown; a cluster of 5,000 nodes runs some hundreds
_NO_INDEX = 1 << 30  # the index that `membership` gives to a pod without a number


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang."""

    uid: str
    key: str  # namespace/name
    rank: int  # from 0
    node: str  # "" until bound or assumed
    assumed: bool


class GangMembers(msgspec.Struct, frozen=True):
    """One gang."""

    key: membership.GangKey
    size: int
    members: tuple[Member, ...]  # by rank

    @property
    def placed(self) -> int:
        """Return the number of members that have a node."""
        return sum(1 for member in self.members if member.node)

    @property
    def state(self) -> str:
        """Return overview_types.PLACED, STARTING or WAITING, from the number of pods with nodes alone."""
        placed = self.placed
        if placed >= self.size:
            return overview_types.PLACED
        return overview_types.STARTING if placed else overview_types.WAITING


def list_gangs(
    cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods, pods: opted_in_pods.OptedInPods
) -> dict[membership.GangKey, GangMembers]:
    """Return the gangs of opted-in pods; of more than MAX_GANGS the first by name."""
    keys = sorted(pods.gangs)[:MAX_GANGS]
    return {key: gang for key in keys if (gang := list_members(key, cluster, assumed)).members}


def list_members(
    key: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods
) -> GangMembers:
    """Return the members of a gang."""
    pods = sorted(cluster.get_gang(key).values(), key=lambda pod: pod.rank)
    assumed_nodes = {assumed_pod.uid: assumed_pod.node for assumed_pod in assumed.list_of_gang(key)}
    members = tuple(
        Member(
            uid=pod.uid,
            key=pod.key,
            rank=rank,
            node=pod.node or assumed_nodes.get(pod.uid, ""),
            assumed=not pod.node and pod.uid in assumed_nodes,
        )
        for rank, pod in zip(_number_members(pods), pods, strict=True)
    )
    return GangMembers(key=key, size=cluster.get_gang_size(key, observed=len(members)), members=members)


def _number_members(pods: Sequence[object_info.PodInfo]) -> Iterable[int]:
    """Return the frameworks' own indices if they are unique, so that a late pod renumbers no other; else positions."""
    indices = [pod.rank.index for pod in pods]
    unique = len(set(indices)) == len(indices) and _NO_INDEX not in indices
    return indices if unique and len({pod.rank.role for pod in pods}) == 1 else range(len(pods))


def assign_colours(
    old: Mapping[membership.GangKey, int], gangs: Collection[membership.GangKey]
) -> dict[membership.GangKey, int]:
    """Return a colour for each gang: its previous one, or the lowest that is unused."""
    colours = {key: old[key] for key in gangs if key in old}
    unused = sorted(set(range(len(gangs))).difference(colours.values()))
    return {**colours, **dict(zip((key for key in gangs if key not in old), unused, strict=False))}
