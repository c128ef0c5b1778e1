"""Lists the gangs of opted-in pods and the members of each: their ranks and nodes, and a colour for each gang."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric.overview import overview_types, pods_and_events
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


class GangIndex:
    """All gangs of opted-in pods. If there are more than MAX_GANGS, the first by name are stored."""

    def __init__(
        self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods, pods: pods_and_events.OptedInPods
    ) -> None:
        self._cluster, self._assumed, self._pods = cluster, assumed, pods
        self._versions: tuple[int, int, int] = (-1, -1, -1)
        self.gangs: dict[membership.GangKey, GangMembers] = {}
        self.colours: dict[membership.GangKey, int] = {}
        self.ranks: dict[str, tuple[membership.GangKey, int]] = {}  # pod uid -> gang and rank
        self.total = 0

    def refresh(self) -> Collection[membership.GangKey]:
        """Update all gangs; return those that appeared, changed or disappeared."""
        versions = (self._cluster.version, self._assumed.change_log.position, self._pods.generation)
        if versions == self._versions:
            return ()
        self._versions = versions
        self.total = len(self._pods.gangs)
        keys = sorted(self._pods.gangs)[:MAX_GANGS]
        gangs = {key: gang for key in keys if (gang := list_members(key, self._cluster, self._assumed)).members}
        changed = [key for key in {**self.gangs, **gangs} if self.gangs.get(key) != gangs.get(key)]
        for key in changed:
            for member in self.gangs[key].members if key in self.gangs else ():
                self.ranks.pop(member.uid, None)
        for key in changed:
            for member in gangs[key].members if key in gangs else ():
                self.ranks[member.uid] = (key, member.rank)
        self.gangs = gangs
        self.colours = _assign_colours(self.colours, gangs)
        return changed


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


def _assign_colours(
    old: Mapping[membership.GangKey, int], gangs: Mapping[membership.GangKey, GangMembers]
) -> dict[membership.GangKey, int]:
    """Return a colour for each gang: its previous one, or the lowest that is unused."""
    colours = {key: old[key] for key in gangs if key in old}
    used = set(colours.values())
    unused = (colour for colour in range(len(gangs) + 1) if colour not in used)
    for key in gangs:
        if key not in colours:
            colours[key] = next(unused)
    return colours
