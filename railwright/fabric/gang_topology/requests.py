"""Compiles a topology request: what a policy asks for a gang, and which levels of domains can hold it.

A request is a value that knows no scheduler. `outlets` turns it into the fields that a scheduler reads.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, hypernodes, node_views, resources, topology, views
from railwright.fabric.injection import templates
from railwright.fabric.placement.nodes import eligibility
from railwright.fabric.placement.state import object_info
from railwright.fabric.policy import model, presets
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

REQUIRED, OFF = "required", "off"


class Segments(NamedTuple):
    """The segments of a gang: their size in ranks, and the key of the level of which each needs one domain."""

    key: str
    size: int


NO_SEGMENTS = Segments("", 1)


class Part(msgspec.Struct, frozen=True):
    """The pods of one template of a gang. `pod` is the pod that will be created."""

    template: templates.Template
    pod: views.Pod
    pods: int
    is_rank: bool  # its pods get rails
    segment: int = 1  # consecutive ranks that share a domain of the closest level


class Level(msgspec.Struct, frozen=True):
    """A level of domains. `largest` is the number of ranks that fit its largest empty domain; None if unknown.

    Above the closest level of the policy, these are whole segments in domains of the closest level.
    """

    key: str  # of the node label, or a level of HyperNodes
    largest: int | None


class TopologyRequest(msgspec.Struct, frozen=True):
    """Asks for one domain for all ranks of a gang, at the lowest level that can hold it."""

    is_required: bool  # a hard constraint; otherwise a soft one
    pods: int  # ranks of the gang
    levels: tuple[Level, ...]  # closest first
    segments: Segments

    @property
    def mode(self) -> str:
        """Return the mode by its name in the policy."""
        return REQUIRED if self.is_required else "preferred"

    def needs_segments(self, level: str, keys: Collection[str], pods: int) -> bool:
        """True if segments need domains of their own in the required domain of a level, and `keys` has their key.

        `pods` are those of the template whose ranks are divided; the schedulers divide them into whole segments only.
        """
        key, size = self.segments
        return self.is_required and size > 1 and key in keys and key != level and pods == self.pods and not pods % size

    def find_lowest(self, is_usable: Callable[[str], bool]) -> Level:
        """Return the lowest level with a usable key and a domain that holds the gang. Raises ReasonError if none."""
        levels = [level for level in self.levels if is_usable(level.key)]
        if not levels:
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_NO_KEY)
        sizes = [level.largest for level in levels if level.largest is not None]
        if len(sizes) < len(levels):
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_CAPACITY_UNKNOWN)
        lowest = next((level for level, size in zip(levels, sizes, strict=True) if size >= self.pods), None)
        if lowest is not None:
            return lowest
        largest = max(sizes)
        key = levels[sizes.index(largest)].key
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_GANG_TOO_LARGE, pods=self.pods, largest=largest, level=key)


class Domains:
    """Measures how many pods fit into the largest domain of each level, if no other pod runs there.

    With segments, the domains above that of a segment hold only whole ones.

    Counts nodes that are Ready, not cordoned, and that the pod selects and tolerates, without what DaemonSets and
    static pods request there. A domain's nodes share its label and those of the levels above.
    """

    def __init__(
        self,
        list_nodes: Callable[[Sequence[str]], Iterable[node_views.Node]],
        get_version: Callable[[], int],
        get_daemon_requests: Callable[[str], resources.FrozenAmounts],
    ) -> None:
        """Read the nodes, with the domains of these keys in their labels, by `list_nodes`.

        `get_version` grows when a node or its daemon pods change.
        """
        self._list_nodes, self._get_version, self._get_daemon_requests = list_nodes, get_version, get_daemon_requests
        self._version = -1
        self._largest: bounded_cache.BoundedCache[bytes, tuple[int, ...]] = bounded_cache.BoundedCache(_MAX_MEASURED)

    def measure(
        self,
        keys: Sequence[str],
        spec: views.PodSpec,
        helper: resources.Amounts = resources.NO_AMOUNTS,
        *,
        segments: Segments = NO_SEGMENTS,
        has_all: bool = False,
    ) -> tuple[int, ...] | None:
        """Return the number for each key, closest first; None if selectors are too long, or amounts too large.

        It is also None if the domains of the segments are not among the keys.

        `helper` is what a pod without rails requests that must fit beside each rank. With `has_all`, only nodes with
        all keys count.
        """
        if segments.size > 1 and segments.key not in keys:
            return None
        if self._version != self._get_version():
            self._largest.clear()
            self._version = self._get_version()
        requests = resources.add_up([resources.compute_requests(spec), helper])
        selectors = views.PodSpec(
            node_selector=spec.node_selector, affinity=spec.affinity, tolerations=spec.tolerations
        )
        try:
            key = _encode((keys, dict(requests), selectors, segments, has_all))
        except OverflowError:  # an amount beyond 64 bits
            return None
        if len(key) > _MAX_KEY:
            return None
        return self._largest.find(key, lambda: self._measure(keys, selectors, requests, segments, has_all=has_all))

    def _measure(
        self,
        keys: Sequence[str],
        spec: views.PodSpec,
        requests: resources.Amounts,
        segments: Segments,
        *,
        has_all: bool,
    ) -> tuple[int, ...]:
        domains: list[dict[topology.Domain, int]] = [{} for _ in keys]
        fits: dict[Hashable, int] = {}  # by what a node has of the requested resources, and what runs on it
        for node in self._list_nodes(keys):
            allocatable, taken = node.status.allocatable, self._get_daemon_requests(node.metadata.name)
            offered = (taken, *map(allocatable.get, requests))
            if offered not in fits:
                amounts = resources.parse_amounts(allocatable)
                free = {name: amounts.get(name, 0) - taken.get(name, 0) for name in requests}
                fits[offered] = resources.count_fits(free, requests)
            if not fits[offered] or not eligibility.is_eligible(_read_node(node), spec):
                continue
            place = topology.read_domains(node.metadata.labels, keys)
            if has_all and not all(place):
                continue
            for level, counts in enumerate(domains):
                if domain := topology.get_domain(place, level):
                    counts[domain] = counts.get(domain, 0) + fits[offered]
        if segments.size > 1:
            level = keys.index(segments.key)
            domains[level + 1 :] = _count_whole_segments(domains[level], len(keys) - level - 1, segments.size)
        return tuple(max(counts.values(), default=0) for counts in domains)


def _count_whole_segments(
    closest: Mapping[topology.Domain, int], levels: int, size: int
) -> list[dict[topology.Domain, int]]:
    """Return the ranks of whole segments in the domains of the levels above the closest. A segment is in one domain."""
    counts: list[dict[topology.Domain, int]] = [{} for _ in range(levels)]
    for place, pods in closest.items():
        for level, higher in enumerate(counts, start=1):
            if domain := topology.get_domain(place, level):
                higher[domain] = higher.get(domain, 0) + pods // size * size
    return counts


_MAX_MEASURED = 256  # pods that differ in requests or selectors
_MAX_KEY = 2048  # bytes of requests and selectors, which are tried on every node; pods in use have some hundred
_encode = msgspec.msgpack.Encoder().encode


def _read_node(node: node_views.Node) -> object_info.NodeInfo:
    """Return a node as eligibility reads it, without amounts."""
    return object_info.NodeInfo(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=node.metadata.labels,
        allocatable=resources.NO_AMOUNTS,
        capacity=resources.NO_AMOUNTS,
        taints=tuple(node.spec.taints or ()),
        schedulable=object_info.is_schedulable(node),
    )


def list_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the keys that a request may name, closest first."""
    allowed = placement.gang_topology_levels
    return tuple(key for key in _list_single_keys(placement) if not allowed or key in allowed)


def _list_single_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the keys of domains that stand for one label, not for several, by {rail}."""
    return tuple(key for key in presets.list_domain_keys(placement) if topology.RAIL not in key)


def is_label(key: str) -> bool:
    """True if the key is that of a node label, not of a level of HyperNodes."""
    return key not in hypernodes.LEVELS


def compile_request(parts: Sequence[Part], placement: model.Placement, domains: Domains | None) -> TopologyRequest:
    """Return the request for a gang. Its capacity is unknown without nodes, and if devices come as claims."""
    ranks = [part for part in parts if part.is_rank and part.pods]
    helpers = [part for part in parts if not part.is_rank and part.pods]
    keys = _list_single_keys(placement)
    closest = next(iter(presets.list_domain_keys(placement)), "")
    segments = Segments(closest, max((part.segment for part in ranks), default=1))
    largest = dict(zip(keys, _measure(keys, ranks, helpers, domains, segments), strict=True))
    return TopologyRequest(
        is_required=placement.gang_topology == REQUIRED,
        pods=sum(part.pods for part in ranks),
        levels=tuple(Level(key, largest[key]) for key in list_keys(placement)),
        segments=segments,
    )


def measure_levels(
    request: TopologyRequest, domains: Domains | None, labels: Sequence[str], specs: Sequence[views.PodSpec]
) -> TopologyRequest:
    """Return the request with the ranks that fit each level of a scheduler's own topology, if they are fewer.

    `labels` are those of its levels, widest first. Only nodes with all of them belong to it.
    """
    room = {level.key: level.largest for level in request.levels}
    keys = labels[::-1]
    for spec in specs:
        counts = domains.measure(keys, spec, segments=request.segments, has_all=True) if domains is not None else None
        for key, count in zip(keys, counts or [None] * len(keys), strict=True):
            largest = room.get(key)
            room[key] = None if largest is None or count is None else min(largest, count)
    levels = tuple([Level(level.key, room[level.key]) for level in request.levels])
    return msgspec.structs.replace(request, levels=levels)


_MAX_PARTS = 4  # templates with ranks that are measured: 10 ms each with 5,000 nodes


def _measure(
    keys: Sequence[str], ranks: Sequence[Part], helpers: Sequence[Part], domains: Domains | None, segments: Segments
) -> Sequence[int | None]:
    """Return the ranks that fit each level, at least. Pods that differ count as the largest of them.

    The gang's pods without rails, such as launchers, count as one beside each rank. The number is unknown if they are
    more than the ranks or select other nodes.
    """
    unknown = [None] * len(keys)
    specs = [part.pod.spec for part in (*ranks, *helpers)]
    selectors = {_encode((spec.node_selector, spec.affinity, spec.tolerations)) for spec in specs}
    is_even = len(selectors) == 1 and sum(part.pods for part in helpers) <= sum(part.pods for part in ranks)
    has_claims = any(part.pod.spec.resource_claims for part in (*ranks, *helpers))
    if domains is None or len(ranks) > _MAX_PARTS or not is_even or has_claims:
        return unknown
    helper = _merge([resources.compute_requests(part.pod.spec) for part in helpers])
    measured = [domains.measure(keys, part.pod.spec, helper, segments=segments) for part in ranks]
    known = [counts for counts in measured if counts is not None]
    return unknown if len(known) < len(measured) else [min(counts) for counts in zip(*known, strict=True)]


def _merge(amounts: Sequence[resources.Amounts]) -> resources.Amounts:
    """Return the largest amount of each resource."""
    names = {name for amount in amounts for name in amount}
    return {name: max(amount.get(name, 0) for amount in amounts) for name in names}
