"""Models which GPUs and NICs kubelet gives a pod: its device manager under the policy `best-effort`.

kubelet takes the narrowest set of NUMA nodes that has all the devices free, the lowest such set, and the first devices
in it (kubernetes pkg/kubelet/cm/topologymanager policy_best_effort.go and bitmask.go, cm/devicemanager/manager.go).
The model works on counts of one node's devices. It knows no cluster, gang or scheduler.
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


def ignore_sharing(grant: Grant) -> Grant:
    """Return a grant whose rails count as if the pod had its NICs alone, beside its GPUs."""
    uses = tuple([(rail, 1.0) for rail, _ in grant.uses])
    return msgspec.structs.replace(grant, uses=uses, value=1.0, other_pods=(0,) * len(uses), is_alone=True)


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


def _assess(  # noqa: PLR0913, PLR0917 - one argument for each fact of the grant
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
        use = bandwidth.RailUse(aligned=aligned, others=other_pods[-1], healthy=hardware.healthy)
        uses.append((rail, bandwidth.compute_rail_bandwidth(use)))
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
