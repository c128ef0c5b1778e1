"""Assesses each pod of a job by its log, and reports in one line whether the job ran over RDMA.

A pod has RDMA on every rail, RDMA on some, TCP, a failure, or is unknown. The network that a process chose carries all
of its traffic, because NCCL has no fallback for single connections. One line therefore decides between RDMA and TCP.
Which rails were used can be read from the channels only. The worst state of a pod decides for the job: TCP, then
failures, then missing rails, then unknown.

Which rails the pods should use comes from their preflights or injection records, never from a log of NCCL.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from railwright.fabric import text
from railwright.fabric.verification import logs

RDMA, PARTIAL, FAILED, TCP, UNKNOWN = "rdma", "partial", "failed", "tcp", "unknown"
"""RDMA on every rail; RDMA on some rails; RDMA that failed; sockets; unknown."""
_STATES_BY_SEVERITY = (TCP, FAILED, PARTIAL, UNKNOWN, RDMA)
_MAX_NAMES = 3  # largest number of pods or reasons in the line


class ExpectedRails(msgspec.Struct, frozen=True):
    """The rails that the log of a pod should show. `rails` is None if their number is unknown."""

    rails: int | None = None
    devices: Mapping[str, str] = {}  # names of the rails by device, as the preflight found them


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The rails and devices that one pod used. `name` is the pod's where the log contains it, otherwise the host's."""

    name: str
    state: str
    ranks: tuple[int, ...]
    transport: str  # common name
    opened: tuple[str, ...]  # ports that NCCL found
    used: tuple[str, ...]  # ports with at least one channel
    rails: int | None  # number of rails that carried RDMA
    missing: tuple[str, ...]  # rails that carried no RDMA; () if their names are unknown
    channels: int
    channels_direct: int
    interfaces: tuple[str, ...]  # that TCP used or would use
    why: tuple[str, ...]  # () for RDMA on every rail


class Report(msgspec.Struct, frozen=True):
    """Whether a job ran over RDMA on every rail, with the assessment of each pod."""

    state: str
    line: str
    rails: int | None  # number that each pod should have used; None if unknown
    pods: tuple[Pod, ...]
    ranks: int | None
    why: tuple[str, ...]


def assess_logs(
    named_logs: Iterable[tuple[str, Iterable[str]]],
    expected: ExpectedRails,
    by_pod: Mapping[str, ExpectedRails] = MappingProxyType({}),
) -> Report:
    """Return the report on logs, each given as (pod name, lines). Lines that name no pod are from this pod.

    `by_pod` has the expectations for certain pods, by their names or host names; `expected` is for all others. Without
    a known number of rails the report never says that all were used: a log shows only those that NCCL looked at.
    """
    summary = logs.collect_messages(named_logs)
    evidence = {name: _Evidence(processes) for name, processes in summary.pods.items()}
    most = max((one.count_rails()[0] or 0 for one in evidence.values()), default=0) or None
    pods = [_assess_pod(name, one, summary.world, by_pod.get(name, expected), most) for name, one in evidence.items()]
    silent = set(range(summary.world or 0)).difference(*(pod.ranks for pod in pods if pod.transport))
    states = {pod.state for pod in pods} | ({UNKNOWN} if silent or not pods else set())
    state = next(state for state in _STATES_BY_SEVERITY if state in states)
    numbers = [by_pod.get(pod.name, expected).rails for pod in pods]
    rails = max((number for number in numbers if number is not None), default=expected.rails)
    report = Report(state, "", rails, tuple(pods), summary.world, tuple(_collect_reasons(pods, silent, summary)))
    if state != RDMA:
        # what a silent pod lacks does not matter beside one that shows more
        reasons = report.why if state == UNKNOWN else [*_group_reasons([pod for pod in pods if pod.state == state])]
        more = len(reasons) - _MAX_NAMES
        line = f"{_BEGINNINGS[state]}: {'; '.join(reasons[:_MAX_NAMES])}{f'; and {more} more' if more > 0 else ''}"
    elif None not in numbers and all(pod.rails is not None for pod in pods):
        line = f"RDMA on every rail: {_summarize(report)}"
    else:
        cause = _UNKNOWN_RAILS if None in numbers else _UNNAMED_DEVICES
        line = f"cannot tell whether every rail is used: {_summarize(report)}; {cause}"
        report = msgspec.structs.replace(report, state=UNKNOWN, why=(cause,))
    return msgspec.structs.replace(report, line=line)


# --- a pod ------------------------------------------------------------------------------------------------


class _Evidence:
    """Networks, rails and errors in the messages of all processes of a pod."""

    def __init__(self, processes: Sequence[logs.Process]) -> None:
        self.processes = processes
        self.networks = set[str]().union(*(process.networks for process in processes))
        self.providers = {provider for process in processes for provider in process.providers}
        self.interfaces = tuple(sorted(set[str]().union(*(process.interfaces for process in processes))))
        self.channels: Counter[logs.Channel] = sum((process.channels for process in processes), Counter())
        lists = [{port for device in process.devices for port in device} for process in processes if process.lists]
        self.opened: set[logs.Port] = set.intersection(*lists) if lists else set()
        self.used: set[logs.Port] = set()
        self.unmapped: set[int] = set()  # device numbers of channels that no device list contains
        self._map_channels()

    def _map_channels(self) -> None:
        merged = {number: names for process in self.processes for number, names in process.virtual.items() if names[1:]}
        longest = max((process.devices for process in self.processes), key=len, default=())
        for process in self.processes:
            devices = process.devices or longest  # one process of a pod may print the list for all
            virtual = process.virtual or merged
            for channel in process.channels:
                number = channel.device
                # numbers beyond the list are devices made of several
                ports = list(devices[number]) if number < len(devices) else []
                ports = ports or [port for device in devices for port in device if port.name in virtual.get(number, ())]
                self.used.update(ports)
                if devices and not ports:
                    self.unmapped.add(number)

    def count_rails(self) -> tuple[int | None, int | None]:
        """Return the numbers of rails opened and used. libfabric stripes over all NICs: it uses all of them or none."""
        if self.opened:
            return len(self.opened), len(self.used)
        nics = max((nics for _, nics in self.providers), default=0)
        if nics:
            return nics, nics if self.channels else 0
        return None, len({channel.device for channel in self.channels}) or None

    @property
    def is_tcp(self) -> bool:
        """True if a process uses sockets, or libfabric over sockets."""
        providers = {name.partition(";")[0].removeprefix("ofi_") for name, _ in self.providers}
        return any(
            bool(providers & _TCP_PROVIDERS) if "libfabric" in name.lower() else bool(_TCP.match(name))
            for name in self.networks
        )

    @property
    def transport(self) -> str:
        """The common name of the transport, such as `RoCE` or `InfiniBand by plugin IBext_v8`; "" if unknown."""
        if self.is_tcp or not self.networks:
            return "TCP" if self.is_tcp else ""
        by_provider = {_PROVIDERS.get(name, name) for name, _ in self.providers}
        kinds = "+".join(sorted({_find_transport(port) for port in self.opened} or by_provider))
        plugins = ", ".join(name for name in sorted(self.networks) if name != "IB")
        if not plugins:
            return kinds or "IB"
        return f"{kinds} by plugin {plugins}" if kinds else f"plugin {plugins}"


_TCP = re.compile(r"^(?:Socket|FastSocket|FasTrak|GPUDirectTCPX)", re.IGNORECASE)  # all but the first are Google's
_RDMA = re.compile(r"^(?:IB$|IBext|NCCL RDMA Plugin|gIB|UCX|AWS Libfabric|Libfabric|eRDMA|SHARP)", re.IGNORECASE)
_TCP_PROVIDERS = {"tcp", "sockets", "udp", "net"}  # of libfabric; also as `tcp;ofi_rxm`
_PROVIDERS = {"efa": "EFA", "cxi": "Slingshot"}
_NAMES_BY_LINK = {"IB": "InfiniBand", "RoCE": "RoCE"}
_DEVICES = (("erdma", "eRDMA"), ("vmw_pvrdma", "PVRDMA"))  # by prefix; their link layer would say RoCE


def _find_transport(port: logs.Port) -> str:
    return next((kind for prefix, kind in _DEVICES if port.name.startswith(prefix)), _NAMES_BY_LINK[port.link])


def _assess_pod(name: str, evidence: _Evidence, world: int | None, expected: ExpectedRails, most: int | None) -> Pod:
    """Compare a pod with `expected`. If its number of rails is unknown, it should use as many as other pods."""
    state, why, missing = _find_state(evidence, expected, most if expected.rails is None else expected.rails)
    return Pod(
        name=name,
        state=state,
        ranks=tuple(sorted({rank for one in evidence.processes for rank, ranks in one.members if ranks == world})),
        transport=evidence.transport,
        opened=_format_ports(evidence.opened),
        used=_format_ports(evidence.used),
        rails=0 if evidence.is_tcp else evidence.count_rails()[1],
        missing=missing,
        channels=evidence.channels.total(),
        channels_direct=sum(count for channel, count in evidence.channels.items() if channel.direct),
        interfaces=evidence.interfaces,
        why=(why,) if why else (),
    )


def _find_state(evidence: _Evidence, expected: ExpectedRails, rails: int | None) -> tuple[str, str, tuple[str, ...]]:
    """Return the state of a pod, why it is not RDMA on every rail, and the missing rails."""
    opened, used = evidence.count_rails()
    failures = sorted({failure for process in evidence.processes for failure in process.failures})
    if evidence.is_tcp:
        interfaces = ", ".join(evidence.interfaces)
        reasons = "; ".join(sorted({reason for process in evidence.processes for reason in process.reasons}))
        over, why = f" over {interfaces}" if interfaces else "", f" ({reasons})" if reasons else ""
        return TCP, f"fell back to sockets{over}{why}", ()
    if not evidence.networks or not all(process.networks for process in evidence.processes):
        why = "no line says which network NCCL chose: the log is truncated, or NCCL_DEBUG_SUBSYS lacks INIT"
        return UNKNOWN, why, ()
    if not evidence.opened and not all(map(_RDMA.match, evidence.networks)):
        networks = ", ".join(sorted(evidence.networks))
        return UNKNOWN, f"network {networks} is unknown to railwright, so it may not be RDMA", ()
    if failures:
        return FAILED, failures[0], ()
    if rails is not None and opened is not None and opened < rails:
        missing = _list_missing(evidence.opened, expected)
        return PARTIAL, f"NCCL found {_format_rails(rails, opened, missing, evidence.opened)}", missing
    if not evidence.channels:
        return UNKNOWN, "no channel to another node: the job has one pod only, or the log is truncated", ()
    if evidence.unmapped:
        numbers = ", ".join(map(str, sorted(evidence.unmapped)))
        return UNKNOWN, f"channels over device {numbers}, which no line names: add NET to NCCL_DEBUG_SUBSYS", ()
    missing = _list_missing(evidence.used, expected) if evidence.used else ()
    if missing or (rails is not None and used is not None and used < rails):
        over = _format_rails(rails or len(expected.devices), used, missing, evidence.used)
        return PARTIAL, f"channels went over {over}", missing
    return RDMA, "", ()


def _format_rails(rails: int, present: int | None, missing: Sequence[str], ports: Collection[logs.Port]) -> str:
    """Return how many rails are present, and which are missing; if that is not known, which ports are present."""
    if missing:  # ports of other devices, such as NICs for storage, are no rails
        return f"{text.format_count(rails, 'rail', part=rails - len(missing))}, missing {', '.join(missing)}"
    named = f" ({', '.join(_format_ports(ports))})" if ports else ""
    return f"{text.format_count(rails, 'rail', part=present)}{named}"


def _list_missing(ports: Collection[logs.Port], expected: ExpectedRails) -> tuple[str, ...]:
    """Return the rails whose device is not among the ports."""
    present = {port.name for port in ports}
    return tuple(f"{rail} ({device})" for device, rail in expected.devices.items() if device not in present)


def _format_ports(ports: Collection[logs.Port]) -> tuple[str, ...]:
    return tuple(f"{port.name}:{port.number}" for port in sorted(ports))


# --- the line ---------------------------------------------------------------------------------------------

_UNKNOWN_RAILS = (
    "the number of rails that the pods have is not known: run `railwright verify job/NAME`, or give --rails"
)
_BEGINNINGS = {
    TCP: "TCP, not RDMA",
    FAILED: "RDMA was set up and failed",
    PARTIAL: "RDMA, but not on every rail",
    UNKNOWN: "cannot tell",
}
_UNNAMED_DEVICES = "the log does not name the devices: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"


def _collect_reasons(pods: Sequence[Pod], silent: Collection[int], summary: logs.LogSummary) -> Iterator[str]:
    if not summary.has_lines:
        yield "the logs are empty: no container has printed anything"
    elif not pods:
        yield (
            "the logs have no line of NCCL about a network: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET, "
            "and pass the complete logs"
        )
    yield from _group_reasons(sorted(pods, key=lambda pod: _STATES_BY_SEVERITY.index(pod.state)))
    if silent:
        missing = f"{_format_ranks(silent)} of {summary.world} do not show their network in the logs"
        yield f"{missing}: pass the complete logs of all pods"


def _group_reasons(pods: Sequence[Pod]) -> Iterator[str]:
    """Yield each reason once, preceded by the names of its pods."""
    by_reason: dict[str, list[str]] = {}
    for pod in pods:
        for reason in pod.why:
            by_reason.setdefault(reason, []).append(_format_pod(pod))
    for reason, affected in by_reason.items():
        yield f"{text.join_first(affected, _MAX_NAMES)}: {reason}"


def _summarize(report: Report) -> str:
    """Return network, rails, ranks and GPUDirect of a job whose pods all use RDMA."""
    parts = [" and ".join(sorted({pod.transport for pod in report.pods}))]
    if used := min((pod.rails for pod in report.pods if pod.rails is not None), default=0):
        number = report.rails
        parts.append(text.format_count(number, "rail", part=used) if number else text.format_count(used, "rail"))
    pods = text.format_count(len(report.pods), "pod")
    parts.append(f"{text.format_count(report.ranks, 'rank')} on {pods}" if report.ranks else pods)
    channels, direct = sum(pod.channels for pod in report.pods), sum(pod.channels_direct for pod in report.pods)
    if direct == channels:
        parts.append("GPUDirect")
    else:
        parts.append(f"GPUDirect on {direct} of {channels} channels" if direct else "without GPUDirect")
    return ", ".join(parts)


def _format_pod(pod: Pod) -> str:
    return f"{pod.name} ({_format_ranks(pod.ranks)})" if pod.ranks else pod.name


def _format_ranks(numbers: Collection[int]) -> str:
    """Return ranks as text: `rank 3`, `ranks 0-7, 12`."""
    ranges: list[list[int]] = []
    for rank in sorted(numbers):
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    joined = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
    return f"rank{'s' * (len(numbers) != 1)} {joined}"
