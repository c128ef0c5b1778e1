"""Holds the simulated cluster: the free devices of every node, which nodes fit a pod, and the domains of nodes.

Owns the state that all schedulers of a run share, and indexes that keep a step cheap. Makes no decision.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import node_views, resources, topology
from railwright.fabric.policy import model, presets
from railwright.simulator import cluster_specs, kubelet

_UNCOUNTED = 1 << 10  # devices of a rail that pods do not request: never used up


class Host(msgspec.Struct, frozen=True):
    """The constant properties of a node."""

    name: str
    chain: tuple[int, ...]  # number of its domain at each level, closest first
    hardware: kubelet.Hardware
    hardware_class: int  # hosts of one class have equal hardware


class Domain(msgspec.Struct, frozen=True):
    """A domain of the fabric."""

    level: int
    size: int  # nodes
    name: str


class FreeCapacity(msgspec.Struct, frozen=True):
    """The grants that each host would give pods of one demand, at one moment."""

    demand: kubelet.Demand
    grants: Sequence[tuple[kubelet.Grant, ...]]  # of each host
    groups: Sequence[int]  # of each host; hosts of one group have equal grants
    total: int  # pods


class Cluster:
    """Hosts, their free devices, and the capacity for each demand."""

    def __init__(self, spec: cluster_specs.ClusterSpec) -> None:
        self.spec = spec
        self.levels = presets.list_domain_keys(spec.fabric.placement)
        self.oversubscription = list_oversubscription(spec)
        self.is_bundled = presets.find_uplinks(spec.fabric.placement) == "bundle"  # the rails of a node share uplinks
        self.rails = len(spec.fabric.rails)
        self.domains: list[Domain] = []
        self.counted, self.named = _find_rails_mode(spec)
        self.hosts = self._build_hosts()
        self.states: list[kubelet.State] = [host.hardware.empty for host in self.hosts]
        self.gpus = sum(sum(host.hardware.gpus) for host in self.hosts)
        self.listeners: list[Callable[[int, kubelet.State], None]] = []  # called for every host that changes
        self._indexes: dict[kubelet.Demand, CapacityIndex] = {}

    def build_demand(self, gpus: int) -> kubelet.Demand:
        """Return the demand of a pod with this number of GPUs, including its share of the node's rails."""
        fabric = self.spec.fabric
        per_node = fabric.gpus_per_node or max(sum(host.hardware.gpus) for host in self.hosts)
        share = -(-gpus * len(fabric.rails) // per_node)
        return kubelet.Demand(
            gpus=gpus, rails=max(1, min(share, len(fabric.rails))), named=self.named, counted=self.counted
        )

    def get_capacity(self, demand: kubelet.Demand) -> "CapacityIndex":
        """Return the capacity for a demand; the index follows later changes."""
        index = self._indexes.get(demand)
        if index is None:
            index = self._indexes[demand] = CapacityIndex(self.hosts, self.states, demand)
        return index

    def start_pod(self, host: int, demand: kubelet.Demand) -> kubelet.Grant:
        """Give a pod its devices on a host."""
        grant = self.get_capacity(demand).grants[host][0]
        self._set_state(host, grant.after)
        return grant

    def end_pod(self, host: int, grant: kubelet.Grant) -> None:
        """Take a pod's devices back."""
        self._set_state(host, kubelet.release(self.states[host], grant))

    def _set_state(self, host: int, state: kubelet.State) -> None:
        self.states[host] = state
        for index in self._indexes.values():
            index.update(host, state)
        for listener in self.listeners:
            listener(host, state)

    def _build_hosts(self) -> list[Host]:
        document, classes = self.spec.policy, dict[kubelet.Hardware, int]()
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


def apply_goal(sim_cluster: Cluster, free: FreeCapacity) -> FreeCapacity:
    """Return what is free as `placement.goal` counts it.

    For `capacity`, a pod that leaves room for another one on a node loses nothing by a shared NIC or another NUMA node.
    """
    demand = free.demand
    is_part = any(2 * demand.gpus <= sum(host.hardware.gpus) for host in sim_cluster.hosts)
    if sim_cluster.spec.fabric.placement.goal != "capacity" or not is_part:
        return free
    counted: dict[int, tuple[kubelet.Grant, ...]] = {}
    for host, group, grants in zip(sim_cluster.hosts, free.groups, free.grants, strict=True):
        if group not in counted:
            is_filled = 2 * demand.gpus <= sum(host.hardware.gpus)
            counted[group] = tuple(map(kubelet.ignore_sharing, grants)) if is_filled else grants
    return FreeCapacity(demand, [counted[group] for group in free.groups], free.groups, free.total)


class CapacityIndex:
    """The grants of every host for one demand, the pods that each host fits, and their sum."""

    def __init__(self, hosts: Sequence[Host], states: Sequence[kubelet.State], demand: kubelet.Demand) -> None:
        self.demand = demand
        self._hosts = hosts
        self._group_by_state: dict[tuple[int, kubelet.State], int] = {}  # key: hardware class and state
        self._grants_by_group: list[tuple[kubelet.Grant, ...]] = []
        self.groups = [self._find_group(index, state) for index, state in enumerate(states)]
        self.grants = [self._grants_by_group[group] for group in self.groups]
        self.slots = [len(grants) for grants in self.grants]
        self.total = sum(self.slots)
        empty_groups = [self._find_group(index, host.hardware.empty) for index, host in enumerate(hosts)]
        self.total_if_empty = sum(len(self._grants_by_group[group]) for group in empty_groups)

    def _find_group(self, host: int, state: kubelet.State) -> int:
        """Return the group of a host in a state: the position of its grants in `_grants_by_group`."""
        key = (self._hosts[host].hardware_class, state)
        group = self._group_by_state.get(key)
        if group is None:
            group = self._group_by_state[key] = len(self._grants_by_group)
            self._grants_by_group.append(kubelet.list_grants(self._hosts[host].hardware, state, self.demand))
        return group

    def snapshot(self) -> FreeCapacity:
        """Return the present capacity as a value."""
        return FreeCapacity(self.demand, list(self.grants), list(self.groups), self.total)

    def update(self, host: int, state: kubelet.State) -> None:
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
    node: node_views.Node, document: model.FabricPolicy, fabric: model.Fabric, *, counted: bool
) -> kubelet.Hardware:
    allocatable = resources.parse_amounts(node.status.allocatable)
    capacity = resources.parse_amounts(node.status.capacity)
    devices = _count_devices(fabric, allocatable, counted=counted)
    gpus = max(allocatable.get(name, 0) for name in document.accelerators) // resources.UNIT
    pools = {rail.resource for rail in fabric.rails if rail.resource}
    healthy = all(allocatable.get(pool, 0) >= capacity.get(pool, 0) for pool in pools)
    shape = model.find_shape(document.node_shapes, node.metadata.labels)
    if shape is None or sum(len(numa.gpus) for numa in shape.numa) != gpus:
        return kubelet.Hardware((gpus,), (0,) * len(devices), devices, healthy)
    numa_of_rail = {rail: index for index, numa in enumerate(shape.numa) for rail in numa.rails}
    rails = tuple(numa_of_rail.get(rail.name, 0) for rail in fabric.rails)
    return kubelet.Hardware(tuple(len(numa.gpus) for numa in shape.numa), rails, devices, healthy)


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
