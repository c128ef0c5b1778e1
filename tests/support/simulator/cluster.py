"""Holds the simulated cluster: the free devices of every node, which nodes fit a pod, and the domains of nodes.

Owns the state that all schedulers of a run share, and indexes that keep a step cheap. Makes no decision.

Which GPUs and NICs kubelet gives a pod is modelled by its device manager under the policy `best-effort`: it takes the
narrowest set of NUMA nodes that has all the devices free, the lowest such set, and the first devices in it (kubernetes
pkg/kubelet/cm/topologymanager policy_best_effort.go and bitmask.go, cm/devicemanager/manager.go). The model works on
counts of one node's devices.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import node_views, resources, topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.policy import model, presets
from simulator import cluster_specs

State = tuple[tuple[int, ...], tuple[int, ...]]
"""What is free on a node: GPUs of each NUMA node, devices of each rail."""


class Hardware(msgspec.Struct, frozen=True):
    """A node's devices."""

    gpus: tuple[int, ...]  # of each NUMA node
    numa_of_rail: tuple[int, ...]
    devices: tuple[int, ...]  # of each rail; 0 if the node does not have it
    healthy: bool = True

    @property
    def empty(self) -> State:
        """Return the state with all devices free."""
        return self.gpus, self.devices


class Demand(msgspec.Struct, frozen=True):
    """The devices that each pod of a job requests."""

    gpus: int
    rails: int
    named: bool = False  # True: the first `rails` rails by name; False: any rails of one pool
    counted: bool = True  # False: the pod requests no devices of its rails, so nodes without some fit too


class Grant(msgspec.Struct, frozen=True):
    """The devices that one pod got, and their bandwidth."""

    gpus: tuple[int, ...]  # of each NUMA node
    uses: tuple[tuple[int, float], ...]  # (rail, its bandwidth 0..1 for the first pod of its gang there)
    value: float  # the pod's bandwidth 0..1, likewise
    split: bool  # over more NUMA nodes than its devices need
    misaligned: int  # rails on another NUMA node than the GPUs that use them
    after: State
    is_alone: bool = False  # sharing of its NICs does not count
    other_pods: tuple[int, ...] = ()  # for each of `uses`: pods of other gangs on that NIC


def list_grants(hardware: Hardware, state: State, demand: Demand) -> tuple[Grant, ...]:
    """Return the grants of one gang's pods on a node, in order, until no more fit.

    Each is assessed as if it were the gang's only pod there; `bandwidth_model` shares NICs between members.
    """
    grants = []
    current = state
    while (grant := _next_grant(hardware, state, current, demand)) is not None:
        grants.append(grant)
        current = grant.after
    return tuple(grants)


def release(state: State, grant: Grant) -> State:
    """Return what is free after a pod with this grant ended."""
    gpus, devices = state
    rails = {rail for rail, _ in grant.uses}
    return (
        tuple(free + released for free, released in zip(gpus, grant.gpus, strict=True)),
        tuple(free + (rail in rails) for rail, free in enumerate(devices)),
    )


def _next_grant(hardware: Hardware, before_gang: State, current: State, demand: Demand) -> Grant | None:
    gpus, rails = current
    if sum(gpus) < demand.gpus or not demand.gpus:
        return None
    usable = _list_usable_rails(hardware, rails, demand)
    if demand.counted and len(usable) < demand.rails:
        return None
    order = _choose_numa_order(hardware, gpus, usable, demand)
    counts = _fill_first([gpus[node] for node in order], demand.gpus)
    by_numa = dict(zip(order, counts, strict=True))
    granted = tuple(by_numa.get(node, 0) for node in range(len(gpus)))
    position = {node: index for index, node in enumerate(order)}
    nics = sorted(usable, key=lambda rail: (position.get(hardware.numa_of_rail[rail], len(order)), rail))
    return _assess(hardware, before_gang, current, demand, granted, sorted(nics[: demand.rails]))


def _assess(
    hardware: Hardware,
    before_gang: State,
    current: State,
    demand: Demand,
    granted: tuple[int, ...],
    nics: Sequence[int],
) -> Grant:
    quotas = [-(-count * demand.rails // demand.gpus) for count in granted]  # rails that the GPUs there can use
    uses, misaligned, other_pods = [], 0, []
    for rail in nics:
        node = hardware.numa_of_rail[rail]
        aligned = quotas[node] > 0
        quotas[node] -= 1
        misaligned += not aligned
        in_use = hardware.devices[rail] - before_gang[1][rail]
        other_pods.append(in_use if demand.named else 0)
        value = bandwidth.compute_rail_bandwidth(is_aligned=aligned, others=other_pods[-1], is_healthy=hardware.healthy)
        uses.append((rail, value))
    touched = {node for node, count in enumerate(granted) if count}
    if demand.counted:
        touched |= {hardware.numa_of_rail[rail] for rail in nics}
    after = (
        tuple(free - count for free, count in zip(current[0], granted, strict=True)),
        tuple(free - (rail in nics) for rail, free in enumerate(current[1])),
    )
    return Grant(
        gpus=granted,
        uses=tuple(uses),
        value=1.0 if not demand.rails else sum(value for _, value in uses) / demand.rails,
        split=len(touched) > _count_min_numa_nodes(hardware, demand),
        misaligned=misaligned,
        after=after,
        other_pods=tuple(other_pods),
    )


def _list_usable_rails(hardware: Hardware, rails: Sequence[int], demand: Demand) -> list[int]:
    if demand.named:
        return [rail for rail in range(demand.rails) if hardware.devices[rail] and rails[rail] > 0]
    return [rail for rail, free in enumerate(rails) if free > 0]


def _choose_numa_order(hardware: Hardware, gpus: Sequence[int], usable: Sequence[int], demand: Demand) -> Sequence[int]:
    """Return the NUMA nodes to take devices from, in order."""
    required = {hardware.numa_of_rail[rail] for rail in usable} if demand.named and demand.counted else set()
    nics = [sum(1 for rail in usable if hardware.numa_of_rail[rail] == node) for node in range(len(gpus))]
    min_nics = demand.rails if demand.counted and not demand.named else 0
    fallback = None
    for mask in _list_numa_sets(len(gpus)):
        if sum(gpus[node] for node in mask) < demand.gpus or sum(nics[node] for node in mask) < min_nics:
            continue
        if required <= set(mask) or not required:
            return mask
        fallback = fallback or mask
    return fallback if fallback is not None else range(len(gpus))


def _list_numa_sets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of NUMA nodes, narrowest first."""
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def _count_min_numa_nodes(hardware: Hardware, demand: Demand) -> int:
    """Return how many NUMA nodes the devices need on an empty node."""
    nics = [0] * len(hardware.gpus)
    for rail, node in enumerate(hardware.numa_of_rail):
        nics[node] += hardware.devices[rail] > 0
    if demand.named and demand.counted:
        return len({hardware.numa_of_rail[rail] for rail in range(demand.rails)})
    min_nics = demand.rails if demand.counted else 0
    for mask in _list_numa_sets(len(hardware.gpus)):
        if sum(hardware.gpus[node] for node in mask) >= demand.gpus and sum(nics[node] for node in mask) >= min_nics:
            return len(mask)
    return len(hardware.gpus)


def _fill_first(free: Sequence[int], required: int) -> list[int]:
    counts = []
    for count in free:
        counts.append(min(count, required))
        required -= counts[-1]
    return counts


# --- the cluster --------------------------------------------------------------------------------------------


_UNCOUNTED = 1 << 10  # devices of a rail that pods do not request: never used up


class Host(msgspec.Struct, frozen=True):
    """The constant properties of a node."""

    name: str
    chain: tuple[int, ...]  # number of its domain at each level, closest first
    hardware: Hardware
    hardware_class: int  # hosts of one class have equal hardware


class Domain(msgspec.Struct, frozen=True):
    """A domain of the fabric."""

    level: int
    size: int  # nodes
    name: str


class FreeCapacity(msgspec.Struct, frozen=True):
    """The grants that each host would give pods of one demand, at one moment."""

    demand: Demand
    grants: Sequence[tuple[Grant, ...]]  # of each host
    groups: Sequence[int]  # of each host; hosts of one group have equal grants
    total: int  # pods


class Cluster:
    """Hosts, their free devices, and the capacity for each demand."""

    def __init__(self, spec: cluster_specs.ClusterSpec) -> None:
        self.spec = spec
        self.levels = presets.list_domain_keys(spec.fabric.placement)
        self.oversubscription = list_oversubscription(spec)
        self.is_bundled = not presets.has_own_uplinks(spec.fabric.placement)  # the rails of a node share uplinks
        self.rails = len(spec.fabric.rails)
        self.domains: list[Domain] = []
        self.counted, self.named = _find_rails_mode(spec)
        self.hosts = self._build_hosts()
        self.states: list[State] = [host.hardware.empty for host in self.hosts]
        self.gpus = sum(sum(host.hardware.gpus) for host in self.hosts)
        self.listeners: list[Callable[[int, State], None]] = []  # called for every host that changes
        self._indexes: dict[Demand, CapacityIndex] = {}

    def build_demand(self, gpus: int) -> Demand:
        """Return the demand of a pod with this number of GPUs, including its share of the node's rails."""
        fabric = self.spec.fabric
        per_node = fabric.gpus_per_node or max(sum(host.hardware.gpus) for host in self.hosts)
        share = -(-gpus * len(fabric.rails) // per_node)
        return Demand(gpus=gpus, rails=max(1, min(share, len(fabric.rails))), named=self.named, counted=self.counted)

    def get_capacity(self, demand: Demand) -> "CapacityIndex":
        """Return the capacity for a demand; the index follows later changes."""
        index = self._indexes.get(demand)
        if index is None:
            index = self._indexes[demand] = CapacityIndex(self.hosts, self.states, demand)
        return index

    def start_pod(self, host: int, demand: Demand) -> Grant:
        """Give a pod its devices on a host."""
        grant = self.get_capacity(demand).grants[host][0]
        self._set_state(host, grant.after)
        return grant

    def end_pod(self, host: int, grant: Grant) -> None:
        """Take a pod's devices back."""
        self._set_state(host, release(self.states[host], grant))

    def _set_state(self, host: int, state: State) -> None:
        self.states[host] = state
        for index in self._indexes.values():
            index.update(host, state)
        for listener in self.listeners:
            listener(host, state)

    def _build_hosts(self) -> list[Host]:
        document, classes = self.spec.policy, dict[Hardware, int]()
        places = [topology.read_domains(node.metadata.labels, self.levels) for node in self.spec.nodes]
        chains = self._number_domains(places)
        hosts = []
        for node, chain in zip(self.spec.nodes, chains, strict=True):
            hardware = _build_hardware(node, document, self.spec.fabric, counted=self.counted)
            hardware_class = classes.setdefault(hardware, len(classes))
            hosts.append(Host(node.metadata.name, chain, hardware, hardware_class))
        return hosts

    def _number_domains(self, places: Sequence[topology.Place]) -> list[tuple[int, ...]]:
        """Return each node's domains by number. A node without a label is its own domain: its links are unknown."""
        numbers: dict[tuple[int, topology.Domain], int] = {}
        sizes: list[int] = []
        chains = []
        for index, place in enumerate(places):
            chain = []
            for level in range(len(self.levels)):
                key = topology.get_domain(place, level) or (f"node {index}",)
                number = numbers.setdefault((level, key), len(numbers))
                if number == len(sizes):
                    sizes.append(0)
                sizes[number] += 1
                chain.append(number)
            chains.append(tuple(chain))
        self.domains = [
            Domain(level, sizes[number], topology.format_domain(key)) for (level, key), number in numbers.items()
        ]
        return chains


class CapacityIndex:
    """The grants of every host for one demand, the pods that each host fits, and their sum."""

    def __init__(self, hosts: Sequence[Host], states: Sequence[State], demand: Demand) -> None:
        self.demand = demand
        self._hosts = hosts
        self._group_by_state: dict[tuple[int, State], int] = {}  # key: hardware class and state
        self._grants_by_group: list[tuple[Grant, ...]] = []
        self.groups = [self._find_group(index, state) for index, state in enumerate(states)]
        self.grants = [self._grants_by_group[group] for group in self.groups]
        self.slots = [len(grants) for grants in self.grants]
        self.total = sum(self.slots)
        empty_groups = [self._find_group(index, host.hardware.empty) for index, host in enumerate(hosts)]
        self.total_if_empty = sum(len(self._grants_by_group[group]) for group in empty_groups)

    def _find_group(self, host: int, state: State) -> int:
        """Return the group of a host in a state: the position of its grants in `_grants_by_group`."""
        key = (self._hosts[host].hardware_class, state)
        group = self._group_by_state.get(key)
        if group is None:
            group = self._group_by_state[key] = len(self._grants_by_group)
            self._grants_by_group.append(list_grants(self._hosts[host].hardware, state, self.demand))
        return group

    def snapshot(self) -> FreeCapacity:
        """Return the present capacity as a value."""
        return FreeCapacity(self.demand, list(self.grants), list(self.groups), self.total)

    def update(self, host: int, state: State) -> None:
        """Apply the new state of a host."""
        self.groups[host] = group = self._find_group(host, state)
        self.grants[host] = grants = self._grants_by_group[group]
        self.total += len(grants) - self.slots[host]
        self.slots[host] = len(grants)


def list_oversubscription(spec: cluster_specs.ClusterSpec) -> tuple[float, ...]:
    """Return the oversubscription of each level, leaf first; 1 where the policy sets none."""
    placement = spec.fabric.placement
    levels = len(presets.list_domain_keys(placement))
    return (*placement.oversubscription, *(1.0,) * levels)[:levels]


def _find_rails_mode(spec: cluster_specs.ClusterSpec) -> tuple[bool, bool]:
    """Return (counted, named). Pods can request rails only if all nodes have them; rails of one pool have no names."""
    rail_resources = {rail.resource for rail in spec.fabric.rails if rail.resource}
    counted = all(rail_resources <= node.status.allocatable.keys() for node in spec.nodes)
    return counted, len(rail_resources) > 1


def _build_hardware(
    node: node_views.Node, document: model.PolicyDocument, fabric: model.Fabric, *, counted: bool
) -> Hardware:
    allocatable = resources.parse_amounts(node.status.allocatable)
    capacity = resources.parse_amounts(node.status.capacity)
    devices = _count_devices(fabric, allocatable, counted=counted)
    gpus = max(allocatable.get(name, 0) for name in document.accelerators) // resources.UNIT
    pools = {rail.resource for rail in fabric.rails if rail.resource}
    healthy = all(allocatable.get(pool, 0) >= capacity.get(pool, 0) for pool in pools)
    shape = model.find_shape(document.node_shapes, node.metadata.labels)
    if shape is None or sum(len(numa.gpus) for numa in shape.numa) != gpus:
        return Hardware((gpus,), (0,) * len(devices), devices, healthy)
    numa_of_rail = {rail: index for index, numa in enumerate(shape.numa) for rail in numa.rails}
    rails = tuple(numa_of_rail.get(rail.name, 0) for rail in fabric.rails)
    return Hardware(tuple(len(numa.gpus) for numa in shape.numa), rails, devices, healthy)


def _count_devices(fabric: model.Fabric, allocatable: Mapping[str, int], *, counted: bool) -> tuple[int, ...]:
    """Return the devices of each rail. Rails of one pool share its devices in order."""
    left = {name: amount // resources.UNIT for name, amount in allocatable.items()}
    rail_resources = [rail.resource for rail in fabric.rails]
    devices = []
    for index, resource in enumerate(rail_resources):
        if not resource:
            devices.append(_UNCOUNTED)
            continue
        count = -(-left.get(resource, 0) // rail_resources[index:].count(resource))
        left[resource] = left.get(resource, 0) - count
        devices.append(count if counted or not count else _UNCOUNTED)
    return tuple(devices)
