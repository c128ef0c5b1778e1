"""What is known of a pod -> what it used: RDMA on every rail, on some, sockets, or nothing that can be told.

Owns the judgement of one pod. The network a process chose carries all its traffic (NCCL has no fallback per
connection), so that one line decides between RDMA and TCP; which rails were used, only its channels tell.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from fabric.verification import gathering, model, networks


class Seen(msgspec.Struct, frozen=True):
    """One pod before it is compared with others. `opened` and `used` are None where the log does not count them."""

    name: str
    ranks: tuple[int, ...]
    networks: tuple[str, ...]
    transport: str
    tcp: bool
    rdma: bool
    silent: bool  # one of its processes did not tell its network
    devices: tuple[model.Hca, ...]  # opened by all of its processes
    taken: tuple[model.Hca, ...]  # those that channels went over
    unmapped: tuple[int, ...]  # device numbers of channels that the log does not name
    opened: int | None
    used: int | None
    channels: int
    direct: int
    interfaces: tuple[str, ...]
    reasons: tuple[str, ...]
    failures: tuple[str, ...]


def look(name: str, processes: Sequence[gathering.Process], world: int | None) -> Seen:
    """All processes of a pod as one."""
    chosen = [each.chosen for each in processes]
    providers = {provider for each in processes for provider in each.providers}
    names = set[str]().union(*chosen)
    everywhere = _common(processes)
    taken, unmapped = _taken(processes)
    channels: Counter[model.Channel] = sum((each.channels for each in processes), Counter())
    tcp = any(networks.is_tcp(each, providers) for each in names)
    opened, used = _counted(everywhere, taken, channels, providers)
    return Seen(
        name=name,
        ranks=tuple(sorted({rank for each in processes for rank in each.ranks_of(world)})),
        networks=tuple(sorted(names)),
        transport="TCP" if tcp else networks.transport(names, everywhere, providers),
        tcp=tcp,
        rdma=bool(names) and all(networks.is_rdma(each, everywhere) for each in names),
        silent=not all(chosen),
        devices=tuple(sorted(everywhere)),
        taken=tuple(sorted(taken)),
        unmapped=tuple(sorted(unmapped)),
        opened=opened,
        used=used,
        channels=channels.total(),
        direct=sum(count for each, count in channels.items() if each.direct),
        interfaces=tuple(sorted({each for process in processes for each in process.interfaces})),
        reasons=tuple(sorted({each for process in processes for each in process.reasons})),
        failures=tuple(sorted({each for process in processes for each in process.failures})),
    )


def _common(processes: Sequence[gathering.Process]) -> set[model.Hca]:
    """The ports that every process opened which said what it opened."""
    lists = [{hca for device in each.devices for hca in device} for each in processes if each.lists]
    return set.intersection(*lists) if lists else set()


def _taken(processes: Sequence[gathering.Process]) -> tuple[set[model.Hca], set[int]]:
    """The ports that channels went over, and the numbers of devices that no list of the process has."""
    taken, unmapped = set[model.Hca](), set[int]()
    merged = {number: names for each in processes for number, names in each.virtual.items() if len(names) > 1}
    listed = max((each.devices for each in processes), key=len, default=())
    for process in processes:
        devices = process.devices or listed  # one process of a pod may print for all
        known = process.virtual or merged
        for channel in process.channels:
            ports = _ports(channel.device, devices, known)
            taken.update(ports)
            if devices and not ports:
                unmapped.add(channel.device)
    return taken, unmapped


def _ports(
    number: int, devices: Sequence[Sequence[model.Hca]], virtual: Mapping[int, Collection[str]]
) -> Collection[model.Hca]:
    """The ports behind a device number: numbers past the list are devices made of several."""
    if number < len(devices):
        return devices[number]
    return [hca for each in devices for hca in each if hca.name in virtual.get(number, ())]


def _counted(
    devices: Collection[model.Hca],
    taken: Collection[model.Hca],
    channels: Collection[model.Channel],
    providers: Collection[model.Provider],
) -> tuple[int | None, int | None]:
    """Rails opened and used. libfabric bundles NICs into devices and stripes over them: all, or none."""
    if devices:
        return len(devices), len(taken)
    nics = max((each.nics for each in providers), default=0)
    if nics:
        return nics, nics if channels else 0
    numbers = {each.device for each in channels}
    return None, len(numbers) if numbers else None


def judge(seen: Seen, expected: model.Expected, rails: int | None) -> model.Pod:
    """One pod against what each should have used."""
    why, state, missing = _state(seen, expected, rails)
    carried = 0 if seen.tcp else seen.used
    return model.Pod(
        name=seen.name,
        state=state,
        ranks=seen.ranks,
        network=seen.networks,
        transport=seen.transport,
        opened=tuple(f"{each.name}:{each.port}" for each in seen.devices),
        used=tuple(f"{each.name}:{each.port}" for each in seen.taken),
        rails=carried,
        missing=missing,
        channels=seen.channels,
        channels_direct=seen.direct,
        interfaces=seen.interfaces,
        why=why,
    )


def _state(  # noqa: C901 - cases in order, the first that holds
    seen: Seen, expected: model.Expected, rails: int | None
) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """(why, state, the rails that are missing)."""
    if seen.tcp:
        return seen.reasons, model.TCP, ()
    if seen.silent or not seen.networks:
        return (
            ("no line says which network it took: the log is cut, or NCCL_DEBUG_SUBSYS lacks INIT",),
            model.UNKNOWN,
            (),
        )
    if not seen.rdma:
        return (f"network {', '.join(seen.networks)} is not known to be RDMA",), model.UNKNOWN, ()
    if not networks.fits(expected.transport, seen.transport):
        return (f"the fabric is {expected.transport}, and it ran over {seen.transport}",), model.PARTIAL, ()
    if seen.failures:
        return seen.failures[:1], model.FAILED, ()
    if rails is not None and seen.opened is not None and seen.opened < rails:
        return (f"NCCL found {seen.opened} of {rails} rails",), model.PARTIAL, _missing(seen.devices, expected)
    if not seen.channels:
        return ("no channel to another node: one pod only, or the log is cut",), model.UNKNOWN, ()
    if seen.unmapped:
        numbers = ", ".join(map(str, seen.unmapped))
        told = f"channels over device {numbers}, which no line names: add NET to NCCL_DEBUG_SUBSYS"
        return (told,), model.UNKNOWN, ()
    if rails is not None and seen.used is not None and seen.used < rails:
        lacking = _missing(seen.taken, expected) or _named(set(seen.devices) - set(seen.taken))
        return (f"channels went over {seen.used} of {rails} rails",), model.PARTIAL, lacking
    lacking = _missing(seen.taken, expected) if seen.taken else ()
    if lacking:
        return (f"channels went over {', '.join(_named(seen.taken))}",), model.PARTIAL, lacking
    return (), model.RDMA, ()


def _missing(had: Collection[model.Hca], expected: model.Expected) -> tuple[str, ...]:
    """The rails of the policy whose device is not among these; () where none of them is, as with virtual functions."""
    names = {each.name for each in had}
    lacking = tuple(each for each in expected.devices if each and names.isdisjoint(each))
    return () if len(lacking) == len(expected.devices) else tuple(" or ".join(each) for each in lacking)


def _named(hcas: Collection[model.Hca]) -> tuple[str, ...]:
    return tuple(f"{each.name}:{each.port}" for each in sorted(hcas))
