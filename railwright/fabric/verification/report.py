"""Reports in one line whether a job ran over RDMA, from the assessments of its pods.

The worst state of a pod decides: TCP, then failures, then missing rails, then unknown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from railwright.fabric import text
from railwright.fabric.verification import assess, log_types, logs, rails

_ORDER = (log_types.TCP, log_types.FAILED, log_types.PARTIAL, log_types.UNKNOWN, log_types.RDMA)
_UNKNOWN_RAILS = (
    "the number of rails that the pods have is not known: run `railwright verify job/NAME`, or give --rails or --fabric"
)
_UNCOUNTED = "the log does not name the devices: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"
_NAMED = 3  # largest number of pods or reasons in the line


def assess_logs(
    named_logs: Iterable[tuple[str, Iterable[str]]],
    expected: log_types.Expected,
    by_pod: Mapping[str, log_types.Expected] = MappingProxyType({}),
) -> log_types.Report:
    """Read logs as (name, lines). The name counts as the pod's name if the lines do not contain one.

    `by_pod` has what certain pods should use, by their names or host names; `expected` is for all others. Without a
    known number of rails the report never says that all were used: a log shows only those that NCCL looked at.
    """

    def find_expected(name: str) -> log_types.Expected:
        return by_pod.get(name, expected)

    log_summary = logs.collect(named_logs)
    summaries = [assess.summarize(name, processes, log_summary.world) for name, processes in log_summary.pods.items()]
    opened = [summary.opened for summary in summaries if summary.opened is not None]
    used = [summary.used for summary in summaries if summary.used is not None]
    most = max(opened, default=max(used, default=None))  # a pod with fewer than others misses some
    all_expected = [find_expected(summary.pod.name) for summary in summaries]
    pods = tuple(
        _name_missing(assess.assess(summary, one, most if one.rails is None else one.rails), summaries)
        for summary, one in zip(summaries, all_expected, strict=True)
    )
    known = [one.rails for one in all_expected if one.rails is not None]
    ranks = {rank for pod, summary in zip(pods, summaries, strict=True) for rank in pod.ranks if summary.pod.network}
    silent = tuple(rank for rank in range(log_summary.world or 0) if rank not in ranks)
    state = _find_worst_state(pods, silent, log_summary)
    are_rails_unknown = state == log_types.RDMA and (len(known) < len(pods) or any(pod.rails is None for pod in pods))
    report = log_types.Report(
        state=log_types.UNKNOWN if are_rails_unknown else state,
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
        by_rail=rails.list_rails(pods, find_expected),
    )
    if are_rails_unknown:
        return msgspec.structs.replace(report, line=_format_unknown_rails(report))
    return msgspec.structs.replace(report, line=_LINES[report.state](report))


def _name_missing(pod: log_types.Pod, summaries: Sequence[assess.PodSummary]) -> log_types.Pod:
    """Add the ports that other pods opened and this one did not, if all pods use the same device names."""
    if pod.state != log_types.PARTIAL or pod.missing:
        return pod
    known = {f"{hca.name}:{hca.port}" for summary in summaries if not summary.tcp for hca in summary.devices}
    missing = known - set(pod.opened)
    is_subset = set(pod.opened) <= known and all(len(summary.devices) <= len(known) for summary in summaries)
    is_complete = any(len(summary.devices) == len(known) for summary in summaries)
    return msgspec.structs.replace(pod, missing=tuple(sorted(missing))) if is_subset and is_complete else pod


def _find_worst_state(pods: Sequence[log_types.Pod], silent: Sequence[int], log_summary: logs.LogSummary) -> str:
    states = {pod.state for pod in pods} or {log_types.UNKNOWN}
    if log_summary.results.wrong:
        states.add(log_types.FAILED)
    if silent:
        states.add(log_types.UNKNOWN)
    return next(state for state in _ORDER if state in states)


def _collect_reasons(
    pods: Sequence[log_types.Pod], silent: Sequence[int], log_summary: logs.LogSummary
) -> Iterable[str]:
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
    by_reason: dict[str, list[log_types.Pod]] = {}
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


def _format_rdma(report: log_types.Report) -> str:
    start = f"RDMA on every rail: {_format_transports(report.pods)}, {_format_rails(report)}"
    return ", ".join(filter(None, (start, _format_size(report), _format_gpudirect(report.pods), _format_busbw(report))))


def _format_tcp(report: log_types.Report) -> str:
    on_tcp = [pod for pod in report.pods if pod.state == log_types.TCP]
    others = [pod for pod in report.pods if pod.state != log_types.TCP]
    all_of = "all of " if not others and len(on_tcp) > 1 else ""
    line = f"TCP, not RDMA: {all_of}{_format_pods(on_tcp)} fell back to sockets"
    if interfaces := sorted({name for pod in on_tcp for name in pod.interfaces}):
        line += f" over {', '.join(interfaces)}"
    if reasons := _format_reasons(on_tcp):
        line += f" ({reasons})"
    if others:
        line += f"; {_count_pods(others)} used {_format_transports(others)}"
    return line + _format_suffix(_format_busbw(report))


def _format_partial(report: log_types.Report) -> str:
    partial = [pod for pod in report.pods if pod.state == log_types.PARTIAL]
    details = [f"{_format_pod(pod)}: {'; '.join(pod.why)}{_format_missing(pod)}" for pod in partial[:_NAMED]]
    more = f", and {text.format_count(len(partial) - _NAMED, 'more pod')}" if len(partial) > _NAMED else ""
    return f"RDMA, but not on every rail: {'. '.join(details)}{more}{_format_suffix(_format_busbw(report))}"


def _format_missing(pod: log_types.Pod) -> str:
    return f", missing {', '.join(pod.missing)}" if pod.missing else ""


def _format_failure(report: log_types.Report) -> str:
    return f"RDMA was set up and failed: {report.why[0]}"


def _format_unknown_rails(report: log_types.Report) -> str:
    used = [pod.rails for pod in report.pods if pod.rails is not None]
    number = text.format_count(min(used), "rail") if used else "rails that are not counted"
    start = f"cannot tell whether on every rail: {_format_transports(report.pods)} on {number}"
    return f"{start}, {_format_size(report)}; {report.why[0]}"


def _format_unknown(report: log_types.Report) -> str:
    return f"cannot tell: {'; '.join(report.why[:_NAMED])}"


_LINES: Mapping[str, Callable[[log_types.Report], str]] = {
    log_types.RDMA: _format_rdma,
    log_types.TCP: _format_tcp,
    log_types.PARTIAL: _format_partial,
    log_types.FAILED: _format_failure,
    log_types.UNKNOWN: _format_unknown,
}


def _format_rails(report: log_types.Report) -> str:
    used = min((pod.rails for pod in report.pods if pod.rails is not None), default=None)
    if used is None or report.rails is None:
        return "rails not counted"
    return text.format_count(report.rails, "rail", part=used)


def _format_size(report: log_types.Report) -> str:
    ranks = f"{text.format_count(report.ranks, 'rank')} on " if report.ranks else ""
    return f"{ranks}{_count_pods(report.pods)}"


def _format_gpudirect(pods: Sequence[log_types.Pod]) -> str:
    channels, direct = sum(pod.channels for pod in pods), sum(pod.channels_direct for pod in pods)
    if not direct:
        return "without GPUDirect"
    return "GPUDirect" if direct == channels else f"GPUDirect on {direct} of {channels} channels"


def _format_busbw(report: log_types.Report) -> str:
    values = []
    if report.busbw_peak is not None:
        values.append(f"{report.busbw_peak:g} peak")
    if report.busbw_average is not None:
        values.append(f"{report.busbw_average:g} average")
    return f"busbw {', '.join(values)} GB/s" if values else ""


def _format_suffix(message: str) -> str:
    return f"; {message}" if message else ""


def _format_transports(pods: Sequence[log_types.Pod]) -> str:
    return " and ".join(sorted({pod.transport for pod in pods if pod.transport} or {"an unknown network"}))


def _format_reasons(pods: Sequence[log_types.Pod]) -> str:
    reasons = list(dict.fromkeys(reason for pod in pods for reason in pod.why))
    return "; ".join(reasons[:_NAMED])


def _format_pods(pods: Sequence[log_types.Pod]) -> str:
    return text.join_first(map(_format_pod, pods), _NAMED)


def _format_pod(pod: log_types.Pod) -> str:
    return f"{pod.name} ({format_ranks(pod.ranks)})" if pod.ranks else pod.name


def _count_pods(pods: Sequence[log_types.Pod]) -> str:
    return text.format_count(len(pods), "pod")
