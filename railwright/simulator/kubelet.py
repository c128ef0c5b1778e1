"""Which GPUs and NICs kubelet gives a pod on a node: a model of its device manager under `best-effort` alignment.

Owns the rule: the narrowest set of NUMA nodes that has all the devices free, the lowest such, first fit inside it
(kubernetes pkg/kubelet/cm/topologymanager policy_best_effort.go and bitmask.go, cm/devicemanager/manager.go). Works on
counts of one node's devices; knows no cluster, gang or scheduler.
"""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from railwright.fabric.placement import bandwidth

State = tuple[tuple[int, ...], tuple[int, ...]]
"""What is free on a node: GPUs of each NUMA node, devices of each rail."""


class Hardware(msgspec.Struct, frozen=True):
    """A node's devices."""

    gpus: tuple[int, ...]  # of each NUMA node
    numa_of_rail: tuple[int, ...]
    devices: tuple[int, ...]  # of each rail; 0 where the node does not have it
    healthy: bool = True

    @property
    def empty(self) -> State:
        """The state with everything free."""
        return self.gpus, self.devices


class Demand(msgspec.Struct, frozen=True):
    """What each pod of a job takes of a node."""

    gpus: int
    rails: int
    named: bool = False  # True: the first `rails` rails by name; False: any rails of one pool
    counted: bool = True  # False: the pod asks for no device of its rails, so that nodes without some fit too


class Grant(msgspec.Struct, frozen=True):
    """What one pod got, and what that is worth."""

    gpus: tuple[int, ...]  # of each NUMA node
    uses: tuple[tuple[int, float], ...]  # rail -> what it gives, 0..1, to the first pod of its gang there
    value: float  # what the pod can give of what it wants, 0..1, likewise
    split: bool  # over more NUMA nodes than its devices need
    misaligned: int  # rails on another NUMA node than the GPUs they serve
    after: State
    strangers: tuple[int, ...] = ()  # for each of `uses`, the pods that were on that NIC before the gang came


def sequence(hardware: Hardware, state: State, demand: Demand) -> tuple[Grant, ...]:
    """The grants of one gang's pods on a node, one after the other, until one more does not fit.

    Each is priced as if it were the first of them; what mates on one NIC lose to each other is `model`'s.
    """
    grants = []
    now = state
    while (found := _grant(hardware, state, now, demand)) is not None:
        grants.append(found)
        now = found.after
    return tuple(grants)


def returned(state: State, grant: Grant) -> State:
    """What is free once a pod with this grant is gone."""
    gpus, devices = state
    rails = {rail for rail, _ in grant.uses}
    return (
        tuple(free + back for free, back in zip(gpus, grant.gpus, strict=True)),
        tuple(free + (rail in rails) for rail, free in enumerate(devices)),
    )


def _grant(hardware: Hardware, before: State, now: State, demand: Demand) -> Grant | None:
    gpus, rails = now
    if sum(gpus) < demand.gpus or not demand.gpus:
        return None
    usable = _usable(hardware, rails, demand)
    if demand.counted and len(usable) < demand.rails:
        return None
    order = _numa_order(hardware, gpus, usable, demand)
    taken = _first_fit([gpus[node] for node in order], demand.gpus)
    by_numa = dict(zip(order, taken, strict=True))
    given = tuple(by_numa.get(node, 0) for node in range(len(gpus)))
    place = {node: rank for rank, node in enumerate(order)}
    nics = sorted(usable, key=lambda rail: (place.get(hardware.numa_of_rail[rail], len(order)), rail))[: demand.rails]
    return _priced(hardware, before, now, demand, given, sorted(nics))


def _priced(  # noqa: PLR0913, PLR0917 - one argument a fact of the grant
    hardware: Hardware, before: State, now: State, demand: Demand, given: tuple[int, ...], nics: Sequence[int]
) -> Grant:
    quotas = [-(-count * demand.rails // demand.gpus) for count in given]  # rails that the GPUs there can keep busy
    uses, misaligned, strangers = [], 0, []
    for rail in nics:
        node = hardware.numa_of_rail[rail]
        aligned = quotas[node] > 0
        quotas[node] -= 1
        misaligned += not aligned
        held = hardware.devices[rail] - before[1][rail]
        strangers.append(held if demand.named else 0)
        use = bandwidth.RailUse(aligned=aligned, others=strangers[-1], healthy=hardware.healthy)
        uses.append((rail, bandwidth.rail(use)))
    touched = {node for node, count in enumerate(given) if count}
    if demand.counted:
        touched |= {hardware.numa_of_rail[rail] for rail in nics}
    after = (
        tuple(free - took for free, took in zip(now[0], given, strict=True)),
        tuple(free - (rail in nics) for rail, free in enumerate(now[1])),
    )
    return Grant(
        gpus=given,
        uses=tuple(uses),
        value=1.0 if not demand.rails else sum(value for _, value in uses) / demand.rails,
        split=len(touched) > _least_numa(hardware, demand),
        misaligned=misaligned,
        after=after,
        strangers=tuple(strangers),
    )


def _usable(hardware: Hardware, rails: Sequence[int], demand: Demand) -> list[int]:
    if demand.named:
        return [rail for rail in range(demand.rails) if hardware.devices[rail] and rails[rail] > 0]
    return [rail for rail, free in enumerate(rails) if free > 0]


def _numa_order(hardware: Hardware, gpus: Sequence[int], usable: Sequence[int], demand: Demand) -> Sequence[int]:
    """The NUMA nodes to take devices from, in this order."""
    wanted = {hardware.numa_of_rail[rail] for rail in usable} if demand.named and demand.counted else set()
    nics = [sum(1 for rail in usable if hardware.numa_of_rail[rail] == node) for node in range(len(gpus))]
    need = demand.rails if demand.counted and not demand.named else 0
    found = None
    for mask in _masks(len(gpus)):
        if sum(gpus[node] for node in mask) < demand.gpus or sum(nics[node] for node in mask) < need:
            continue
        if wanted <= set(mask) or not wanted:
            found = mask
            break
        found = found or mask
    return found if found is not None else range(len(gpus))


def _masks(count: int) -> Iterator[tuple[int, ...]]:
    """Sets of NUMA nodes, the narrowest first."""
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def _least_numa(hardware: Hardware, demand: Demand) -> int:
    """NUMA nodes that the devices need on an empty node."""
    nics = [0] * len(hardware.gpus)
    for rail, node in enumerate(hardware.numa_of_rail):
        nics[node] += hardware.devices[rail] > 0
    if demand.named and demand.counted:
        return len({hardware.numa_of_rail[rail] for rail in range(demand.rails)})
    need = demand.rails if demand.counted else 0
    for mask in _masks(len(hardware.gpus)):
        if sum(hardware.gpus[node] for node in mask) >= demand.gpus and sum(nics[node] for node in mask) >= need:
            return len(mask)
    return len(hardware.gpus)


def _first_fit(free: Sequence[int], wanted: int) -> list[int]:
    taken = []
    for count in free:
        taken.append(min(count, wanted))
        wanted -= taken[-1]
    return taken
