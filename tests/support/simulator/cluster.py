"""Holds the simulated cluster: the free devices of every node, which nodes fit a pod, and the domains of nodes.

Owns the state that all schedulers of a run share, and indexes that keep a step cheap. Makes no decision.

Which GPUs and NICs kubelet gives a pod is modelled by its device manager under the policy `best-effort`: it takes the
narrowest set of NUMA nodes that has all the devices free, the lowest such set, and the first devices in it (kubernetes
pkg/kubelet/cm/topologymanager policy_best_effort.go and bitmask.go, cm/devicemanager/manager.go). The model works on
counts of one node's devices.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

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
    devices: tuple[int, ...]  # of each rail

    @property
    def empty(self) -> State:
        """Return the state with all devices free."""
        return self.gpus, self.devices


class Demand(msgspec.Struct, frozen=True):
    """The devices that each pod of a job requests: GPUs, and any rails of one pool."""

    gpus: int
    rails: int


class Grant(msgspec.Struct, frozen=True):
    """The devices that one pod got, and their bandwidth."""

    gpus: tuple[int, ...]  # of each NUMA node
    rails: tuple[int, ...]
    value: float  # the pod's bandwidth 0..1
    split: bool  # over more NUMA nodes than its devices need
    after: State  # what is free on the node afterwards


def list_grants(hardware: Hardware, state: State, demand: Demand) -> tuple[Grant, ...]:
    """Return the grants of one gang's pods on a node, in order, until no more fit."""
    grants = []
    while (grant := _next_grant(hardware, state, demand)) is not None:
        grants.append(grant)
        state = grant.after
    return tuple(grants)


def release(state: State, grant: Grant) -> State:
    """Return what is free after a pod with this grant ended."""
    gpus, devices = state
    return (
        tuple(free + released for free, released in zip(gpus, grant.gpus, strict=True)),
        tuple(free + (rail in grant.rails) for rail, free in enumerate(devices)),
    )


def _next_grant(hardware: Hardware, state: State, demand: Demand) -> Grant | None:
    gpus, devices = state
    usable = [rail for rail, free in enumerate(devices) if free]
    if sum(gpus) < demand.gpus or not demand.gpus or len(usable) < demand.rails:
        return None
    nics = [sum(hardware.numa_of_rail[rail] == node for rail in usable) for node in range(len(gpus))]
    order = _choose_numa_nodes(gpus, nics, demand)
    counts = _fill_first([gpus[node] for node in order], demand.gpus)
    by_numa = dict(zip(order, counts, strict=True))
    granted = tuple(by_numa.get(node, 0) for node in range(len(gpus)))
    position = {node: index for index, node in enumerate(order)}
    usable.sort(key=lambda rail: (position.get(hardware.numa_of_rail[rail], len(order)), rail))
    return _assess(hardware, state, demand, granted, sorted(usable[: demand.rails]))


def _assess(hardware: Hardware, state: State, demand: Demand, granted: tuple[int, ...], rails: Sequence[int]) -> Grant:
    quotas = [-(-count * demand.rails // demand.gpus) for count in granted]  # rails that the GPUs there can use
    total = 0.0
    for rail in rails:
        node = hardware.numa_of_rail[rail]
        total += 1.0 if quotas[node] > 0 else bandwidth.MISALIGNED
        quotas[node] -= 1
    touched = {node for node, count in enumerate(granted) if count} | {hardware.numa_of_rail[rail] for rail in rails}
    after = (
        tuple(free - count for free, count in zip(state[0], granted, strict=True)),
        tuple(free - (rail in rails) for rail, free in enumerate(state[1])),
    )
    nics = [0] * len(hardware.gpus)
    for rail, node in enumerate(hardware.numa_of_rail):
        nics[node] += hardware.devices[rail] > 0
    least = len(_choose_numa_nodes(hardware.gpus, nics, demand))  # on an empty node
    return Grant(granted, tuple(rails), total / demand.rails, len(touched) > least, after)


def _choose_numa_nodes(gpus: Sequence[int], nics: Sequence[int], demand: Demand) -> Sequence[int]:
    """Return the narrowest and lowest NUMA nodes that together have the free devices; all if there are none."""
    for nodes in _list_numa_sets(len(gpus)):
        if sum(gpus[node] for node in nodes) >= demand.gpus and sum(nics[node] for node in nodes) >= demand.rails:
            return nodes
    return range(len(gpus))


def _list_numa_sets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of NUMA nodes, narrowest first."""
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def _fill_first(free: Sequence[int], required: int) -> list[int]:
    counts = []
    for count in free:
        counts.append(min(count, required))
        required -= counts[-1]
    return counts


# --- the cluster --------------------------------------------------------------------------------------------


class Host(msgspec.Struct, frozen=True):
    """The constant properties of a node."""

    name: str
    chain: tuple[int, ...]  # number of its domain at each level, closest first
    hardware: Hardware


class Domain(msgspec.Struct, frozen=True):
    """A domain of the fabric."""

    level: int
    size: int  # nodes
    name: str


class FreeCapacity(msgspec.Struct, frozen=True):
    """The grants that each host would give pods of one demand, at one moment."""

    demand: Demand
    grants: Sequence[tuple[Grant, ...]]  # of each host
    total: int  # pods


class Cluster:
    """Hosts, their free devices, and the capacity for each demand."""

    def __init__(self, spec: cluster_specs.ClusterSpec) -> None:
        self.spec = spec
        self.levels = presets.list_domain_keys(spec.fabric.placement)
        self.oversubscription = list_oversubscription(spec)
        self.rails = len(spec.fabric.rails)
        self.domains: list[Domain] = []
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
        return Demand(gpus, max(1, min(share, len(fabric.rails))))

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
        places = [topology.read_domains(node.metadata.labels, self.levels) for node in self.spec.nodes]
        chains = self._number_domains(places)
        return [
            Host(node.metadata.name, chain, _build_hardware(node, self.spec.policy, self.spec.fabric))
            for node, chain in zip(self.spec.nodes, chains, strict=True)
        ]

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
        self._grants_by_state: dict[tuple[Hardware, State], tuple[Grant, ...]] = {}
        self.grants = [self._list_grants(index, state) for index, state in enumerate(states)]
        self.slots = [len(grants) for grants in self.grants]
        self.total = sum(self.slots)
        self.total_if_empty = sum(len(self._list_grants(at, host.hardware.empty)) for at, host in enumerate(hosts))

    def _list_grants(self, host: int, state: State) -> tuple[Grant, ...]:
        key = (self._hosts[host].hardware, state)
        grants = self._grants_by_state.get(key)
        if grants is None:
            grants = self._grants_by_state[key] = list_grants(*key, self.demand)
        return grants

    def snapshot(self) -> FreeCapacity:
        """Return the present capacity as a value."""
        return FreeCapacity(self.demand, list(self.grants), self.total)

    def update(self, host: int, state: State) -> None:
        """Apply the new state of a host."""
        self.grants[host] = grants = self._list_grants(host, state)
        self.total += len(grants) - self.slots[host]
        self.slots[host] = len(grants)


def list_oversubscription(spec: cluster_specs.ClusterSpec) -> tuple[float, ...]:
    """Return the oversubscription of each level, leaf first; 1 where the policy sets none."""
    placement = spec.fabric.placement
    levels = len(presets.list_domain_keys(placement))
    return (*placement.oversubscription, *(1.0,) * levels)[:levels]


def _build_hardware(node: node_views.Node, document: model.PolicyDocument, fabric: model.Fabric) -> Hardware:
    """Return a node's devices. The rails share those of one pool in order."""
    amounts, count = resources.parse_amounts(node.status.allocatable), len(fabric.rails)
    pool = amounts.get(fabric.rails[0].resource, 0) // resources.UNIT
    devices = tuple(len(range(rail, pool, count)) for rail in range(count))
    shape = model.find_shape(document.node_shapes, node.metadata.labels)
    assert shape is not None
    numa_of_rail = {rail: index for index, numa in enumerate(shape.numa) for rail in numa.rails}
    rails = tuple(numa_of_rail[rail.name] for rail in fabric.rails)
    return Hardware(tuple(len(numa.gpus) for numa in shape.numa), rails, devices)
