"""Assesses one pod: RDMA on every rail, RDMA on some, TCP, a failure, or unknown.

The network that a process chose carries all of its traffic, because NCCL has no fallback for single connections. One
line therefore decides between RDMA and TCP. Which rails were used can be read from the channels only.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import text
from railwright.fabric.verification import log_types, logs


class PodSummary(msgspec.Struct, frozen=True):
    """One pod before it is compared with others. `opened` and `used` are None where the log does not show them."""

    pod: log_types.Pod  # without a state
    tcp: bool
    rdma: bool
    has_silent_process: bool  # the log does not show the network of one of its processes
    devices: tuple[logs.Hca, ...]  # opened by all processes
    used_devices: tuple[logs.Hca, ...]  # with at least one channel
    unmapped: tuple[int, ...]  # device numbers of channels whose device the log does not name
    opened: int | None  # number of rails
    used: int | None  # number of rails
    reasons: tuple[str, ...]
    failures: tuple[str, ...]


def summarize(name: str, processes: Sequence[logs.Process], world: int | None) -> PodSummary:
    """Combine all processes of a pod. `world` is the number of ranks of the job."""
    chosen = [process.chosen_networks for process in processes]
    providers = {provider for process in processes for provider in process.providers}
    names = set[str]().union(*chosen)
    devices = _intersect_devices(processes)
    used_devices, unmapped = _map_channels(processes)
    channels: Counter[logs.Channel] = sum((process.channels for process in processes), Counter())
    tcp = any(_is_tcp(network, providers) for network in names)
    opened, used = _count_rails(devices, used_devices, channels, providers)
    pod = log_types.Pod(
        name=name,
        state=log_types.UNKNOWN,
        ranks=tuple(sorted({rank for process in processes for rank in process.list_world_ranks(world)})),
        network=tuple(sorted(names)),
        transport="TCP" if tcp else _describe_transport(names, devices, providers),
        opened=_format_ports(devices),
        used=_format_ports(used_devices),
        rails=0 if tcp else used,
        channels=channels.total(),
        channels_direct=sum(count for channel, count in channels.items() if channel.direct),
        interfaces=tuple(sorted({interface for process in processes for interface in process.interfaces})),
    )
    return PodSummary(
        pod=pod,
        tcp=tcp,
        rdma=bool(names) and all(_is_rdma(network, devices) for network in names),
        has_silent_process=not all(chosen),
        devices=tuple(sorted(devices)),
        used_devices=tuple(sorted(used_devices)),
        unmapped=tuple(sorted(unmapped)),
        opened=opened,
        used=used,
        reasons=tuple(sorted({reason for process in processes for reason in process.reasons})),
        failures=tuple(sorted({failure for process in processes for failure in process.failures})),
    )


def _intersect_devices(processes: Sequence[logs.Process]) -> set[logs.Hca]:
    """Return the ports opened by all processes that listed their devices."""
    lists = [{hca for device in process.devices for hca in device} for process in processes if process.lists]
    return set.intersection(*lists) if lists else set()


def _map_channels(processes: Sequence[logs.Process]) -> tuple[set[logs.Hca], set[int]]:
    """Return the ports with channels, and the device numbers of channels that no device list contains."""
    used_devices, unmapped = set[logs.Hca](), set[int]()
    merged = {number: names for process in processes for number, names in process.virtual.items() if len(names) > 1}
    longest = max((process.devices for process in processes), key=len, default=())
    for process in processes:
        devices = process.devices or longest  # one process of a pod may print the list for all
        virtual = process.virtual or merged
        for channel in process.channels:
            ports = _find_ports(channel.device, devices, virtual)
            used_devices.update(ports)
            if devices and not ports:
                unmapped.add(channel.device)
    return used_devices, unmapped


def _find_ports(
    number: int, devices: Sequence[Sequence[logs.Hca]], virtual: Mapping[int, Collection[str]]
) -> Collection[logs.Hca]:
    """Return the ports of a device number. Numbers beyond the device list are virtual devices made of several ports."""
    if number < len(devices):
        return devices[number]
    return [hca for device in devices for hca in device if hca.name in virtual.get(number, ())]


def _count_rails(
    devices: Collection[logs.Hca],
    used_devices: Collection[logs.Hca],
    channels: Collection[logs.Channel],
    providers: Collection[logs.Provider],
) -> tuple[int | None, int | None]:
    """Return the numbers of rails opened and used. libfabric stripes over all NICs, so it uses all of them or none."""
    if devices:
        return len(devices), len(used_devices)
    nics = max((provider.nics for provider in providers), default=0)
    if nics:
        return nics, nics if channels else 0
    numbers = {channel.device for channel in channels}
    return None, len(numbers) if numbers else None


def assess(summary: PodSummary, expected: log_types.Expected, rails: int | None) -> log_types.Pod:
    """Compare a pod with what each pod should have used. `rails` is the expected number, None if unknown."""
    state = _find_state(summary, expected, rails)
    return msgspec.structs.replace(summary.pod, state=state.code, missing=state.missing, why=state.reasons)


class _State(NamedTuple):
    code: str
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # rails or devices


def _find_state(  # noqa: C901 - a list of cases, the first that applies counts
    summary: PodSummary, expected: log_types.Expected, rails: int | None
) -> _State:
    if summary.tcp:
        return _State(log_types.TCP, summary.reasons)
    if summary.has_silent_process or not summary.pod.network:
        reason = "no line says which network it took: the log is cut, or NCCL_DEBUG_SUBSYS lacks INIT"
        return _State(log_types.UNKNOWN, (reason,))
    if not summary.rdma:
        return _State(
            log_types.UNKNOWN,
            (f"network {', '.join(summary.pod.network)} is unknown to railwright, so it may not be RDMA",),
        )
    if not _matches_policy(expected.transport, summary.pod.transport):
        return _State(
            log_types.PARTIAL, (f"the fabric is {expected.transport}, and it ran over {summary.pod.transport}",)
        )
    if summary.failures:
        return _State(log_types.FAILED, summary.failures[:1])
    if rails is not None and summary.opened is not None and summary.opened < rails:
        reason = f"NCCL found {text.format_count(rails, 'rail', part=summary.opened)}"
        if expected.own_list:
            reason += f" with the pod's own {expected.own_list}: name the devices of all rails in it, or remove it"
        return _State(log_types.PARTIAL, (reason,), _list_missing_rails(summary.devices, expected))
    if not summary.pod.channels:
        return _State(log_types.UNKNOWN, ("no channel to another node: one pod only, or the log is cut",))
    if summary.unmapped:
        numbers = ", ".join(map(str, summary.unmapped))
        reason = f"channels over device {numbers}, which no line names: add NET to NCCL_DEBUG_SUBSYS"
        return _State(log_types.UNKNOWN, (reason,))
    if rails is not None and summary.used is not None and summary.used < rails:
        unused = set(summary.devices) - set(summary.used_devices)
        missing = _list_missing_rails(summary.used_devices, expected) or _format_ports(unused)
        return _State(
            log_types.PARTIAL, (f"channels went over {text.format_count(rails, 'rail', part=summary.used)}",), missing
        )
    missing = _list_missing_rails(summary.used_devices, expected) if summary.used_devices else ()
    if missing:
        return _State(
            log_types.PARTIAL, (f"channels went over {', '.join(_format_ports(summary.used_devices))}",), missing
        )
    return _State(log_types.RDMA)


def _list_missing_rails(devices: Collection[logs.Hca], expected: log_types.Expected) -> tuple[str, ...]:
    """Return the rails of the policy whose device is not in `devices`.

    Return () if the policy's names match none of them, as with virtual functions.
    """
    names = {device.name for device in devices}
    missing = tuple(candidates for candidates in expected.devices if candidates and names.isdisjoint(candidates))
    return () if len(missing) == len(expected.devices) else tuple(map(" or ".join, missing))


def _format_ports(hcas: Collection[logs.Hca]) -> tuple[str, ...]:
    return tuple(f"{hca.name}:{hca.port}" for hca in sorted(hcas))


# --- names of networks and devices ------------------------------------------------------------------------

# FastSocket, FasTrak and GPUDirectTCPX are Google's and run over TCP.
_TCP = re.compile(r"^(?:Socket|FastSocket|FasTrak|GPUDirectTCPX)", re.IGNORECASE)
_RDMA = re.compile(r"^(?:IB$|IBext|NCCL RDMA Plugin|gIB|UCX|AWS Libfabric|Libfabric|eRDMA|SHARP)", re.IGNORECASE)
_LIBFABRIC = re.compile(r"libfabric", re.IGNORECASE)
_TCP_PROVIDERS = ("tcp", "sockets", "udp", "net")  # of libfabric; also as `tcp;ofi_rxm`
_DEVICES = (("erdma", "eRDMA"), ("vmw_pvrdma", "PVRDMA"))  # by prefix; their link layer would say RoCE
_LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}
_PROVIDERS = {"efa": "EFA", "cxi": "Slingshot"}
_POLICY = {  # transport in the policy -> names in the log; udev renames PVRDMA devices
    "roce": ("RoCE",),
    "infiniband": ("InfiniBand",),
    "erdma": ("eRDMA",),
    "pvrdma": ("PVRDMA", "RoCE", "InfiniBand"),
    "efa": ("EFA",),
}


def _is_tcp(name: str, providers: Iterable[logs.Provider]) -> bool:
    """True for sockets, and for libfabric over sockets."""
    if _LIBFABRIC.search(name):
        return any(provider.name.partition(";")[0].removeprefix("ofi_") in _TCP_PROVIDERS for provider in providers)
    return bool(_TCP.match(name))


def _is_rdma(name: str, hcas: Collection[logs.Hca]) -> bool:
    """True if the network is known to be RDMA or lists RDMA devices."""
    return not _TCP.match(name) and (bool(_RDMA.match(name)) or bool(hcas))


def _describe_transport(names: Iterable[str], hcas: Iterable[logs.Hca], providers: Iterable[logs.Provider]) -> str:
    """Return the common name of the transport, such as `RoCE` or `InfiniBand by plugin IBext_v8`."""
    by_provider = {_PROVIDERS.get(provider.name, provider.name) for provider in providers}
    kinds = sorted({_find_device_transport(hca) for hca in hcas} or by_provider)
    plugins = [name for name in sorted(set(names)) if name != "IB"]
    if not plugins:
        return "+".join(kinds) or "IB"
    return f"{'+'.join(kinds)} by plugin {', '.join(plugins)}" if kinds else f"plugin {', '.join(plugins)}"


def _matches_policy(expected: str, observed: str) -> bool:
    """True if the observed transport is that of the policy, or is unknown. `observed` is from _describe_transport."""
    kinds = observed.partition(" by plugin ")[0]
    is_unknown = not expected or kinds.startswith("plugin ") or kinds == "IB"
    return is_unknown or set(kinds.split("+")) <= set(_POLICY[expected])


def _find_device_transport(hca: logs.Hca) -> str:
    return next((kind for prefix, kind in _DEVICES if hca.name.startswith(prefix)), _LINKS[hca.link])
