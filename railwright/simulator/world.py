"""The simulated cluster: what every node holds free, which nodes can take a pod, and what it is beside others.

Owns the state that all schedulers of a run see and the books that keep one step cheap. Decides nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology, views
from railwright.fabric.policy import model, presets
from railwright.simulator import kubelet, sites

_UNCOUNTED = 1 << 10  # devices of a rail that pods do not ask for: it is never used up


class Host(msgspec.Struct, frozen=True):
    """A node that does not change: where it is and what it has."""

    name: str
    chain: tuple[int, ...]  # its domain at each level, closest first, by number
    hardware: kubelet.Hardware
    kind: int  # hosts of one kind have equal hardware


class Domain(msgspec.Struct, frozen=True):
    """A domain of the fabric."""

    level: int
    size: int  # nodes
    name: str


class Free(msgspec.Struct, frozen=True):
    """What every host would grant pods of one demand, one after the other, at one moment."""

    demand: kubelet.Demand
    grants: Sequence[tuple[kubelet.Grant, ...]]
    total: int  # pods


class World:
    """Hosts, their free devices, and per demand how many pods each can take."""

    def __init__(self, site: sites.Site) -> None:
        self.site = site
        self.levels = presets.domains(site.fabric.placement)
        self.oversubscription = ratios(site)
        self.bundled = presets.uplinks(site.fabric.placement) == "bundle"  # the rails of a node share uplinks
        self.rails = len(site.fabric.rails)
        self.domains: list[Domain] = []
        self.counted, self.named = _rails_mode(site)
        self.hosts = self._built()
        self.states: list[kubelet.State] = [host.hardware.empty for host in self.hosts]
        self.gpus = sum(sum(host.hardware.gpus) for host in self.hosts)
        self.watchers: list[Callable[[int, kubelet.State], None]] = []  # told of every host that changes
        self._books: dict[kubelet.Demand, Book] = {}

    def demand(self, gpus: int) -> kubelet.Demand:
        """What a pod with so many GPUs takes: its share of the rails of a node."""
        fabric = self.site.fabric
        per_node = fabric.gpus_per_node or max(sum(host.hardware.gpus) for host in self.hosts)
        share = -(-gpus * len(fabric.rails) // per_node)
        return kubelet.Demand(
            gpus=gpus, rails=max(1, min(share, len(fabric.rails))), named=self.named, counted=self.counted
        )

    def book(self, demand: kubelet.Demand) -> "Book":
        """Room for pods of a demand, kept up to date from now on."""
        found = self._books.get(demand)
        if found is None:
            found = self._books[demand] = Book(self.hosts, self.states, demand)
        return found

    def take(self, host: int, demand: kubelet.Demand) -> kubelet.Grant:
        """A pod starts on a host."""
        grant = self.book(demand).grants[host][0]
        self._set(host, grant.after)
        return grant

    def give_back(self, host: int, grant: kubelet.Grant) -> None:
        """A pod is gone."""
        self._set(host, kubelet.returned(self.states[host], grant))

    def _set(self, host: int, state: kubelet.State) -> None:
        self.states[host] = state
        for book in self._books.values():
            book.renew(host, state)
        for tell in self.watchers:
            tell(host, state)

    def _built(self) -> list[Host]:
        document, kinds = self.site.policy, dict[kubelet.Hardware, int]()
        places = [topology.place_of(node.metadata.labels, self.levels) for node in self.site.nodes]
        chains = self._chains(places)
        hosts = []
        for node, chain in zip(self.site.nodes, chains, strict=True):
            hardware = _hardware(node, document, self.site.fabric, counted=self.counted)
            kind = kinds.setdefault(hardware, len(kinds))
            hosts.append(Host(node.metadata.name, chain, hardware, kind))
        return hosts

    def _chains(self, places: Sequence[topology.Place]) -> list[tuple[int, ...]]:
        """Domains by number; a node without a label is a domain of its own, for nothing is known of its links."""
        numbers: dict[tuple[int, topology.Domain], int] = {}
        sizes: list[int] = []
        chains = []
        for index, place in enumerate(places):
            chain = []
            for level in range(len(self.levels)):
                key = topology.domain(place, level) or (f"node {index}",)
                number = numbers.setdefault((level, key), len(numbers))
                if number == len(sizes):
                    sizes.append(0)
                sizes[number] += 1
                chain.append(number)
            chains.append(tuple(chain))
        self.domains = [Domain(level, sizes[number], topology.name_of(key)) for (level, key), number in numbers.items()]
        return chains


class Book:
    """For one demand: what every host would grant, how many pods it holds, and how many the cluster does."""

    def __init__(self, hosts: Sequence[Host], states: Sequence[kubelet.State], demand: kubelet.Demand) -> None:
        self.demand = demand
        self._hosts = hosts
        self._known: dict[tuple[int, kubelet.State], tuple[kubelet.Grant, ...]] = {}
        self.grants = [self.sequence(index, state) for index, state in enumerate(states)]
        self.rooms = [len(each) for each in self.grants]
        self.total = sum(self.rooms)
        self.capacity = sum(len(self.sequence(index, host.hardware.empty)) for index, host in enumerate(hosts))

    def sequence(self, host: int, state: kubelet.State) -> tuple[kubelet.Grant, ...]:
        """What pods of this demand would get on a host in a state."""
        key = (self._hosts[host].kind, state)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = kubelet.sequence(self._hosts[host].hardware, state, self.demand)
        return found

    def free(self) -> Free:
        """The moment, kept."""
        return Free(self.demand, list(self.grants), self.total)

    def renew(self, host: int, state: kubelet.State) -> None:
        """A host changed."""
        self.grants[host] = found = self.sequence(host, state)
        self.total += len(found) - self.rooms[host]
        self.rooms[host] = len(found)


def ratios(site: sites.Site) -> tuple[float, ...]:
    """The oversubscription of each level of domains, leaf first; 1 where the policy says nothing."""
    placement = site.fabric.placement
    levels = len(presets.domains(placement))
    return (*placement.oversubscription, *(1.0,) * levels)[:levels]


def _rails_mode(site: sites.Site) -> tuple[bool, bool]:
    """(counted, named): pods can ask for rails only if all nodes have them; rails of one resource have no names."""
    wanted = {rail.resource for rail in site.fabric.rails if rail.resource}
    counted = all(wanted <= node.status.allocatable.keys() for node in site.nodes)
    return counted, len(wanted) > 1


def _hardware(
    node: views.Node, document: model.FabricPolicy, fabric: model.Fabric, *, counted: bool
) -> kubelet.Hardware:
    has = resources.amounts(node.status.allocatable)
    could = resources.amounts(node.status.capacity)
    devices = _devices(fabric, has, counted=counted)
    gpus = max(has.get(name, 0) for name in document.accelerators) // resources.UNIT
    pools = {rail.resource for rail in fabric.rails if rail.resource}
    healthy = all(has.get(pool, 0) >= could.get(pool, 0) for pool in pools)
    shape = _shape(node.metadata.labels, document)
    if shape is None or sum(len(each.gpus) for each in shape.numa) != gpus:
        return kubelet.Hardware((gpus,), (0,) * len(devices), devices, healthy)
    home = {rail: index for index, each in enumerate(shape.numa) for rail in each.rails}
    numa = tuple(home.get(rail.name, 0) for rail in fabric.rails)
    return kubelet.Hardware(tuple(len(each.gpus) for each in shape.numa), numa, devices, healthy)


def _devices(fabric: model.Fabric, has: Mapping[str, int], *, counted: bool) -> tuple[int, ...]:
    """Devices of each rail; those of a pool are dealt out to its rails in order."""
    left = {name: amount // resources.UNIT for name, amount in has.items()}
    shared = [rail.resource for rail in fabric.rails]
    devices = []
    for index, resource in enumerate(shared):
        if not resource:
            devices.append(_UNCOUNTED)
            continue
        each = -(-left.get(resource, 0) // shared[index:].count(resource))
        left[resource] = left.get(resource, 0) - each
        devices.append(each if counted or not each else _UNCOUNTED)
    return tuple(devices)


def _shape(labels: Mapping[str, str], document: model.FabricPolicy) -> model.NodeShape | None:
    return next((shape for shape in document.node_shapes if shape.match.items() <= labels.items()), None)
