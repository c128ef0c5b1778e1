"""Assesses each pod of a job by its log, and reports in one line whether the job ran over RDMA.

A pod has RDMA on every rail, RDMA on some, TCP, a failure, or is unknown. The network that a process chose carries all
of its traffic, because NCCL has no fallback for single connections. One line therefore decides between RDMA and TCP.
Which rails were used can be read from the channels only. The worst state of a pod decides for the job: TCP, then
failures, then missing rails, then unknown.

Which rails the pods should use comes from a pod's injection record, its claims or the policy, never from a log. The
report is the JSON of `railwright verify log`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, text, views
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies
from railwright.fabric.verification import logs

RDMA, PARTIAL, FAILED, TCP, UNKNOWN = "rdma", "partial", "failed", "tcp", "unknown"
"""RDMA on every rail; RDMA on some rails; RDMA that failed or gave wrong results; sockets; unknown."""


class Expected(msgspec.Struct, frozen=True):
    """The expected content of the logs of a pod. `rails` is None if it is not known how many rails the pod has."""

    rails: int | None = None
    transport: str = ""  # of the policy; "" if there is no policy
    devices: tuple[tuple[str, ...], ...] = ()  # of each rail: its device name on each node shape
    names: tuple[str, ...] = ()  # of the rails
    own_list: str = ""  # the author's own list of devices, as NAME 'VALUE'


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The rails and devices that one pod used. `name` is the pod's where the log contains it, otherwise the host's."""

    name: str
    state: str
    ranks: tuple[int, ...]
    network: tuple[str, ...]  # NCCL's name
    transport: str  # common name
    opened: tuple[str, ...]  # ports that NCCL found
    used: tuple[str, ...]  # ports with at least one channel
    rails: int | None  # number of rails that carried RDMA
    missing: tuple[str, ...] = ()  # rails or ports that carried no RDMA; () if their names are unknown
    channels: int
    channels_direct: int
    interfaces: tuple[str, ...]  # that TCP used or would use
    why: tuple[str, ...] = ()


class Rail(msgspec.Struct, frozen=True):
    """The verdict for a rail of the job: `rdma`, `tcp` if a pod did not use it, or `unknown`."""

    name: str
    state: str
    devices: tuple[str, ...]  # its names in the pods, as far as they are known
    used: tuple[str, ...]  # pods
    unused: tuple[str, ...]
    unknown: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """The assessment of a whole job."""

    state: str
    line: str
    rails: int | None  # number that each pod should have used; None if unknown
    pods: tuple[Pod, ...]
    ranks: int | None
    ranks_seen: int
    version: tuple[str, ...]
    busbw_average: float | None  # GB/s, as nccl-tests prints it
    busbw_peak: float | None
    why: tuple[str, ...]
    by_rail: tuple[Rail, ...] = ()  # rails that the policy or the pods' records name


class PodSummary(msgspec.Struct, frozen=True):
    """One pod before it is compared with others. `opened` and `used` are None where the log does not show them."""

    pod: Pod  # without a state
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
    pod = Pod(
        name=name,
        state=UNKNOWN,
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


def assess(summary: PodSummary, expected: Expected, rails: int | None) -> Pod:
    """Compare a pod with what each pod should have used. `rails` is the expected number, None if unknown."""
    state = _find_state(summary, expected, rails)
    return msgspec.structs.replace(summary.pod, state=state.code, missing=state.missing, why=state.reasons)


class _State(NamedTuple):
    code: str
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # rails or devices


def _find_state(  # noqa: C901 - a list of cases, the first that applies counts
    summary: PodSummary, expected: Expected, rails: int | None
) -> _State:
    if summary.tcp:
        return _State(TCP, summary.reasons)
    if summary.has_silent_process or not summary.pod.network:
        reason = "no line says which network it took: the log is cut, or NCCL_DEBUG_SUBSYS lacks INIT"
        return _State(UNKNOWN, (reason,))
    if not summary.rdma:
        return _State(
            UNKNOWN,
            (f"network {', '.join(summary.pod.network)} is unknown to railwright, so it may not be RDMA",),
        )
    if not _matches_policy(expected.transport, summary.pod.transport):
        return _State(PARTIAL, (f"the fabric is {expected.transport}, and it ran over {summary.pod.transport}",))
    if summary.failures:
        return _State(FAILED, summary.failures[:1])
    if rails is not None and summary.opened is not None and summary.opened < rails:
        reason = f"NCCL found {text.format_count(rails, 'rail', part=summary.opened)}"
        if expected.own_list:
            reason += f" with the pod's own {expected.own_list}: name the devices of all rails in it, or remove it"
        return _State(PARTIAL, (reason,), _list_missing_rails(summary.devices, expected))
    if not summary.pod.channels:
        return _State(UNKNOWN, ("no channel to another node: one pod only, or the log is cut",))
    if summary.unmapped:
        numbers = ", ".join(map(str, summary.unmapped))
        reason = f"channels over device {numbers}, which no line names: add NET to NCCL_DEBUG_SUBSYS"
        return _State(UNKNOWN, (reason,))
    if rails is not None and summary.used is not None and summary.used < rails:
        unused = set(summary.devices) - set(summary.used_devices)
        missing = _list_missing_rails(summary.used_devices, expected) or _format_ports(unused)
        return _State(PARTIAL, (f"channels went over {text.format_count(rails, 'rail', part=summary.used)}",), missing)
    missing = _list_missing_rails(summary.used_devices, expected) if summary.used_devices else ()
    if missing:
        return _State(PARTIAL, (f"channels went over {', '.join(_format_ports(summary.used_devices))}",), missing)
    return _State(RDMA)


def _list_missing_rails(devices: Collection[logs.Hca], expected: Expected) -> tuple[str, ...]:
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


# --- the report of a job ----------------------------------------------------------------------------------

_ORDER = (TCP, FAILED, PARTIAL, UNKNOWN, RDMA)
_UNKNOWN_RAILS = (
    "the number of rails that the pods have is not known: run `railwright verify job/NAME`, or give --rails or --fabric"
)
_UNCOUNTED = "the log does not name the devices: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"
_NAMED = 3  # largest number of pods or reasons in the line


def assess_logs(
    named_logs: Iterable[tuple[str, Iterable[str]]],
    expected: Expected,
    by_pod: Mapping[str, Expected] = MappingProxyType({}),
) -> Report:
    """Read logs as (name, lines). The name counts as the pod's name if the lines do not contain one.

    `by_pod` has what certain pods should use, by their names or host names; `expected` is for all others. Without a
    known number of rails the report never says that all were used: a log shows only those that NCCL looked at.
    """

    def find_expected(name: str) -> Expected:
        return by_pod.get(name, expected)

    log_summary = logs.collect(named_logs)
    summaries = [summarize(name, processes, log_summary.world) for name, processes in log_summary.pods.items()]
    opened = [summary.opened for summary in summaries if summary.opened is not None]
    used = [summary.used for summary in summaries if summary.used is not None]
    most = max(opened, default=max(used, default=None))  # a pod with fewer than others misses some
    all_expected = [find_expected(summary.pod.name) for summary in summaries]
    pods = tuple(
        _name_missing(assess(summary, one, most if one.rails is None else one.rails), summaries)
        for summary, one in zip(summaries, all_expected, strict=True)
    )
    known = [one.rails for one in all_expected if one.rails is not None]
    ranks = {rank for pod, summary in zip(pods, summaries, strict=True) for rank in pod.ranks if summary.pod.network}
    silent = tuple(rank for rank in range(log_summary.world or 0) if rank not in ranks)
    state = _find_worst_state(pods, silent, log_summary)
    are_rails_unknown = state == RDMA and (len(known) < len(pods) or any(pod.rails is None for pod in pods))
    report = Report(
        state=UNKNOWN if are_rails_unknown else state,
        line="",
        rails=max(known, default=expected.rails),
        pods=pods,
        ranks=log_summary.world,
        ranks_seen=len(ranks),
        version=log_summary.versions,
        busbw_average=min(log_summary.results.averages, default=None),
        busbw_peak=max(log_summary.results.peaks, default=None),
        why=(_UNKNOWN_RAILS if len(known) < len(pods) else _UNCOUNTED,)
        if are_rails_unknown
        else tuple(_collect_reasons(pods, silent, log_summary)),
        by_rail=list_rails(pods, find_expected),
    )
    if are_rails_unknown:
        return msgspec.structs.replace(report, line=_format_unknown_rails(report))
    return msgspec.structs.replace(report, line=_LINES[report.state](report))


def _name_missing(pod: Pod, summaries: Sequence[PodSummary]) -> Pod:
    """Add the ports that other pods opened and this one did not, if all pods use the same device names."""
    if pod.state != PARTIAL or pod.missing:
        return pod
    known = {f"{hca.name}:{hca.port}" for summary in summaries if not summary.tcp for hca in summary.devices}
    missing = known - set(pod.opened)
    is_subset = set(pod.opened) <= known and all(len(summary.devices) <= len(known) for summary in summaries)
    is_complete = any(len(summary.devices) == len(known) for summary in summaries)
    return msgspec.structs.replace(pod, missing=tuple(sorted(missing))) if is_subset and is_complete else pod


def _find_worst_state(pods: Sequence[Pod], silent: Sequence[int], log_summary: logs.LogSummary) -> str:
    states = {pod.state for pod in pods} or {UNKNOWN}
    if log_summary.results.wrong:
        states.add(FAILED)
    if silent:
        states.add(UNKNOWN)
    return next(state for state in _ORDER if state in states)


def _collect_reasons(pods: Sequence[Pod], silent: Sequence[int], log_summary: logs.LogSummary) -> Iterable[str]:
    if not log_summary.has_lines:
        yield "the logs are empty: no container has printed anything, or a selector of kubectl logs matches no pod"
    elif not log_summary.has_info_lines:
        yield "the logs have no NCCL line at INFO: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"
    elif not pods:
        yield (
            "the logs have no NCCL line about a network: they are truncated, or NCCL_DEBUG_SUBSYS lacks INIT; "
            "run with NCCL_DEBUG_SUBSYS=INIT,NET and pass the complete logs"
        )
    if log_summary.results.wrong:
        yield f"{log_summary.results.wrong} results were wrong (nccl-tests: out of bounds values)"
    by_reason: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: _ORDER.index(pod.state)):
        for reason in pod.why:
            by_reason.setdefault(reason, []).append(pod)
    for reason, affected in by_reason.items():
        yield f"{_format_pods(affected)}: {reason}"
    if silent and log_summary.has_info_lines:
        missing = f"{format_ranks(silent)} of {log_summary.world} do not show their network in the logs"
        yield f"{missing}: pass the complete logs of all pods"


# --- the line ---------------------------------------------------------------------------------------------


def format_ranks(numbers: Sequence[int]) -> str:
    """Return ranks as text: `rank 3`, `ranks 0-7, 12`."""
    ranges: list[list[int]] = []
    for rank in sorted(numbers):
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    joined = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
    return f"rank{'s' * (len(numbers) != 1)} {joined}"


def _format_rdma(report: Report) -> str:
    start = f"RDMA on every rail: {_format_transports(report.pods)}, {_format_rails(report)}"
    return ", ".join(filter(None, (start, _format_size(report), _format_gpudirect(report.pods), _format_busbw(report))))


def _format_tcp(report: Report) -> str:
    on_tcp = [pod for pod in report.pods if pod.state == TCP]
    others = [pod for pod in report.pods if pod.state != TCP]
    all_of = "all of " if not others and len(on_tcp) > 1 else ""
    line = f"TCP, not RDMA: {all_of}{_format_pods(on_tcp)} fell back to sockets"
    if interfaces := sorted({name for pod in on_tcp for name in pod.interfaces}):
        line += f" over {', '.join(interfaces)}"
    if reasons := _format_reasons(on_tcp):
        line += f" ({reasons})"
    if others:
        line += f"; {_count_pods(others)} used {_format_transports(others)}"
    return line + _format_suffix(_format_busbw(report))


def _format_partial(report: Report) -> str:
    partial = [pod for pod in report.pods if pod.state == PARTIAL]
    details = []
    for pod in partial[:_NAMED]:
        missing = f", missing {', '.join(pod.missing)}" if pod.missing else ""
        details.append(f"{_format_pod(pod)}: {'; '.join(pod.why)}{missing}")
    more = f", and {text.format_count(len(partial) - _NAMED, 'more pod')}" if len(partial) > _NAMED else ""
    return f"RDMA, but not on every rail: {'. '.join(details)}{more}{_format_suffix(_format_busbw(report))}"


def _format_unknown_rails(report: Report) -> str:
    used = [pod.rails for pod in report.pods if pod.rails is not None]
    number = text.format_count(min(used), "rail") if used else "rails that are not counted"
    start = f"cannot tell whether on every rail: {_format_transports(report.pods)} on {number}"
    return f"{start}, {_format_size(report)}; {report.why[0]}"


_LINES: Mapping[str, Callable[[Report], str]] = {
    RDMA: _format_rdma,
    TCP: _format_tcp,
    PARTIAL: _format_partial,
    FAILED: lambda report: f"RDMA was set up and failed: {report.why[0]}",
    UNKNOWN: lambda report: f"cannot tell: {'; '.join(report.why[:_NAMED])}",
}


def _format_rails(report: Report) -> str:
    used = min((pod.rails for pod in report.pods if pod.rails is not None), default=None)
    if used is None or report.rails is None:
        return "rails not counted"
    return text.format_count(report.rails, "rail", part=used)


def _format_size(report: Report) -> str:
    ranks = f"{text.format_count(report.ranks, 'rank')} on " if report.ranks else ""
    return f"{ranks}{_count_pods(report.pods)}"


def _format_gpudirect(pods: Sequence[Pod]) -> str:
    channels, direct = sum(pod.channels for pod in pods), sum(pod.channels_direct for pod in pods)
    if not direct:
        return "without GPUDirect"
    return "GPUDirect" if direct == channels else f"GPUDirect on {direct} of {channels} channels"


def _format_busbw(report: Report) -> str:
    values = []
    if report.busbw_peak is not None:
        values.append(f"{report.busbw_peak:g} peak")
    if report.busbw_average is not None:
        values.append(f"{report.busbw_average:g} average")
    return f"busbw {', '.join(values)} GB/s" if values else ""


def _format_suffix(message: str) -> str:
    return f"; {message}" if message else ""


def _format_transports(pods: Sequence[Pod]) -> str:
    return " and ".join(sorted({pod.transport for pod in pods if pod.transport} or {"an unknown network"}))


def _format_reasons(pods: Sequence[Pod]) -> str:
    reasons = list(dict.fromkeys(reason for pod in pods for reason in pod.why))
    return "; ".join(reasons[:_NAMED])


def _format_pods(pods: Sequence[Pod]) -> str:
    return text.join_first(map(_format_pod, pods), _NAMED)


def _format_pod(pod: Pod) -> str:
    return f"{pod.name} ({format_ranks(pod.ranks)})" if pod.ranks else pod.name


def _count_pods(pods: Sequence[Pod]) -> str:
    return text.format_count(len(pods), "pod")


# --- the rails of a job -------------------------------------------------------------------------------------


_LIST = "NCCL_IB_HCA"


def expect(document: policies.PolicyDocument, fabric_name: str) -> Expected:
    """Return what each pod of a job on this fabric should use: all rails of the fabric.

    The fabric must have rails. `devicesPerRail` is the number of NICs on EFA only: a shared device plugin hands out
    one HCA for any number of requested devices.
    """
    fabric = document.fabrics[fabric_name]
    per_rail = fabric.devices_per_rail if fabric.transport is policies.Transport.EFA else 1
    devices = [tuple(sorted(rail.list_devices(document.node_shapes))) for rail in fabric.rails]
    return Expected(
        rails=len(fabric.rails) * per_rail,
        transport=fabric.transport,
        devices=tuple(devices) if all(devices) else (),
        names=tuple([rail.name for rail in fabric.rails]),
    )


def expect_of_pod(pod: views.Pod) -> Expected:
    """Return what a pod should use by the rails that its claims hold, otherwise by its injection record.

    `rails` is None without a record, and without rails in it. Device names are those of the list that railwright wrote.
    A user's list is not evidence of them.
    """
    placement = intent.read_placement(pod)
    if placement is not None and (held := placement.devices):
        held_names = tuple((device.rdma_device,) for device in held) if all(one.rdma_device for one in held) else ()
        return Expected(len(held), devices=held_names, names=tuple(device.rail for device in held))
    record = intent.read_record(pod)
    if not record.rails:
        return Expected()
    rail_names = tuple(record.rails)
    devices: tuple[tuple[str, ...], ...] = ()
    own_list = ""
    for container in pod.spec.containers:
        if container.name not in record.containers:
            continue
        value = next((entry.value for entry in container.env if entry.name == _LIST), None) or ""
        if _LIST in record.user_values.get(container.name, ()):
            own_list = f"{_LIST} {text.quote(value)}" if value else _LIST
            continue
        written = lists.parse(value)
        if written.exact and not written.exclude and len(written.entries) == len(rail_names):
            devices = tuple((entry.name,) for entry in written.entries)
    return Expected(rails=len(rail_names), devices=devices, names=rail_names, own_list=own_list)


def add_devices(own: Expected, policy: Expected) -> Expected:
    """Return what a pod should use, with transport and device names of its rails by the policy where it has none."""
    own = msgspec.structs.replace(own, transport=policy.transport)
    if own.devices or not policy.devices or not set(own.names) <= set(policy.names):
        return own
    return msgspec.structs.replace(own, devices=tuple(policy.devices[policy.names.index(name)] for name in own.names))


def list_rails(pods: Sequence[Pod], find_expected: Callable[[str], Expected]) -> tuple[Rail, ...]:
    """Return a verdict for each named rail that a pod should have used, in the order of the pods."""
    rail_names = dict.fromkeys(name for pod in pods for name in find_expected(pod.name).names)
    return tuple(_assess(name, pods, find_expected) for name in rail_names)


def _assess(name: str, pods: Sequence[Pod], find_expected: Callable[[str], Expected]) -> Rail:
    used: list[str] = []
    unused: list[str] = []
    unknown: list[str] = []
    devices: set[str] = set()
    for pod in pods:
        expected = find_expected(pod.name)
        if name not in expected.names:
            continue
        candidates = expected.devices[expected.names.index(name)] if expected.devices else ()
        devices.update(candidates)
        has_channels = any(port.partition(":")[0] in candidates for port in pod.used)
        if pod.state == RDMA or (has_channels and pod.state != TCP):
            used.append(pod.name)
        elif pod.state == TCP or (candidates and pod.used):
            unused.append(pod.name)
        else:
            unknown.append(pod.name)
    state = TCP if unused else UNKNOWN if unknown else RDMA
    return Rail(name, state, tuple(sorted(devices)), tuple(used), tuple(unused), tuple(unknown))
