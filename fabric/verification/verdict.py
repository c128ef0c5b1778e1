"""The verdict over all pods, in one line: what somebody reads who wants to know whether the job ran over RDMA.

Owns the order of findings (TCP, then what broke, then rails that are missing, then what cannot be told) and the words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from fabric.verification import gathering, judging, model

_ORDER = (model.TCP, model.FAILED, model.PARTIAL, model.UNKNOWN, model.RDMA)
_NAMED = 3  # pods and reasons that are named in the line


def of(logs: Iterable[tuple[str, Iterable[str]]], expected: model.Expected) -> model.Verdict:
    """Read logs, each with the name that stands for its pod where its lines name none."""
    heard = gathering.hear(logs)
    seen = [judging.look(name, processes, heard.world) for name, processes in heard.pods.items()]
    opened = [each.opened for each in seen if each.opened is not None]
    used = [each.used for each in seen if each.used is not None]
    rails = expected.rails if expected.rails is not None else max(opened, default=max(used, default=None))
    pods = tuple(_compared(judging.judge(each, expected, rails), seen) for each in seen)
    ranks = {rank for pod, each in zip(pods, seen, strict=True) for rank in pod.ranks if each.networks}
    silent = tuple(rank for rank in range(heard.world or 0) if rank not in ranks)
    found = model.Verdict(
        state=_state(pods, silent, heard),
        line="",
        rails=rails,
        pods=pods,
        ranks=heard.world,
        ranks_seen=len(ranks),
        version=heard.versions,
        busbw_average=heard.average,
        busbw_peak=heard.peak,
        why=tuple(_why(pods, silent, heard)),
    )
    return msgspec.structs.replace(found, line=_LINES[found.state](found))


def _compared(pod: model.Pod, seen: Sequence[judging.Seen]) -> model.Pod:
    """Name what a pod did not find by what the others did, where their devices have the same names."""
    if pod.state != model.PARTIAL or pod.missing:
        return pod
    others = {f"{each.name}:{each.port}" for one in seen if not one.tcp for each in one.devices}
    lacking = others - set(pod.opened)
    alike = set(pod.opened) <= others and all(len(one.devices) <= len(others) for one in seen)
    same = any(len(one.devices) == len(others) for one in seen)
    return msgspec.structs.replace(pod, missing=tuple(sorted(lacking))) if alike and same else pod


def _state(pods: Sequence[model.Pod], silent: Sequence[int], heard: gathering.Heard) -> str:
    states = {each.state for each in pods} or {model.UNKNOWN}
    if heard.wrong:
        states.add(model.FAILED)
    if silent:
        states.add(model.UNKNOWN)
    return next(each for each in _ORDER if each in states)


def _why(pods: Sequence[model.Pod], silent: Sequence[int], heard: gathering.Heard) -> Iterable[str]:
    if not heard.spoke:
        yield "no line of NCCL at INFO: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET"
    elif not pods:
        yield "NCCL said nothing of its network: the log is cut, or NCCL_DEBUG_SUBSYS lacks INIT"
    if heard.wrong:
        yield f"{heard.wrong} results were wrong (nccl-tests: out of bounds values)"
    by_reason: dict[str, list[model.Pod]] = {}
    for pod in sorted(pods, key=lambda each: _ORDER.index(each.state)):
        for each in pod.why:
            by_reason.setdefault(each, []).append(pod)
    for reason, whose in by_reason.items():
        yield f"{_pods(whose)}: {reason}"
    if silent and heard.spoke:
        yield f"{ranks(silent)} of {heard.world} did not say which network they took: give the logs of all pods, whole"


# --- the line ---------------------------------------------------------------------------------------------


def ranks(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-7, 12`."""
    parts: list[list[int]] = []
    for each in sorted(numbers):
        if parts and parts[-1][1] == each - 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    told = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)
    return f"rank{'s' * (len(numbers) != 1)} {told}"


def _rdma(verdict: model.Verdict) -> str:
    told = [f"RDMA on every rail: {_transports(verdict.pods)}, {_share(verdict, verdict.pods)}", _span(verdict)]
    return ", ".join(filter(None, (*told, _direct(verdict.pods), _speed(verdict))))


def _tcp(verdict: model.Verdict) -> str:
    fell = [each for each in verdict.pods if each.state == model.TCP]
    others = [each for each in verdict.pods if each.state != model.TCP]
    rest = f"; {_count(others)} used {_transports(others)}" if others else ""
    over = sorted({name for each in fell for name in each.interfaces})
    whole = f"TCP, not RDMA: {'all of ' if not others and len(fell) > 1 else ''}{_pods(fell)} fell back to sockets"
    whole += f" over {', '.join(over)}" if over else ""
    why = _reasons(fell)
    return f"{whole}{f' ({why})' if why else ''}{rest}{_after(_speed(verdict))}"


def _partial(verdict: model.Verdict) -> str:
    short = [each for each in verdict.pods if each.state == model.PARTIAL]
    told = [f"{_pod(each)}: {'; '.join(each.why)}{_missing(each)}" for each in short[:_NAMED]]
    more = f", and {len(short) - _NAMED} more pods" if len(short) > _NAMED else ""
    return f"RDMA, but not on every rail: {'. '.join(told)}{more}{_after(_speed(verdict))}"


def _missing(pod: model.Pod) -> str:
    return f", missing {', '.join(pod.missing)}" if pod.missing else ""


def _failed(verdict: model.Verdict) -> str:
    return f"RDMA was set up and failed: {verdict.why[0]}"


def _unknown(verdict: model.Verdict) -> str:
    return f"cannot tell: {'; '.join(verdict.why[:_NAMED])}"


_LINES: Mapping[str, Callable[[model.Verdict], str]] = {
    model.RDMA: _rdma,
    model.TCP: _tcp,
    model.PARTIAL: _partial,
    model.FAILED: _failed,
    model.UNKNOWN: _unknown,
}


def _share(verdict: model.Verdict, pods: Sequence[model.Pod]) -> str:
    used = min((each.rails for each in pods if each.rails is not None), default=None)
    if used is None or verdict.rails is None:
        return "rails not counted"
    return f"{used} of {verdict.rails} rails"


def _span(verdict: model.Verdict) -> str:
    told = f"{verdict.ranks} ranks on " if verdict.ranks else ""
    return f"{told}{_count(verdict.pods)}"


def _direct(pods: Sequence[model.Pod]) -> str:
    every, direct = sum(each.channels for each in pods), sum(each.channels_direct for each in pods)
    if not direct:
        return "without GPUDirect"
    return "GPUDirect" if direct == every else f"GPUDirect on {direct} of {every} channels"


def _speed(verdict: model.Verdict) -> str:
    told = []
    if verdict.busbw_peak is not None:
        told.append(f"{verdict.busbw_peak:g} peak")
    if verdict.busbw_average is not None:
        told.append(f"{verdict.busbw_average:g} average")
    return f"busbw {', '.join(told)} GB/s" if told else ""


def _after(text: str) -> str:
    return f"; {text}" if text else ""


def _transports(pods: Sequence[model.Pod]) -> str:
    return " and ".join(sorted({each.transport for each in pods if each.transport} or {"nothing that was told"}))


def _reasons(pods: Sequence[model.Pod]) -> str:
    every = list(dict.fromkeys(why for each in pods for why in each.why))
    return "; ".join(every[:_NAMED])


def _pods(pods: Sequence[model.Pod]) -> str:
    named = ", ".join(map(_pod, pods[:_NAMED]))
    return f"{named} and {len(pods) - _NAMED} more" if len(pods) > _NAMED else named


def _pod(pod: model.Pod) -> str:
    return f"{pod.name} ({ranks(pod.ranks)})" if pod.ranks else pod.name


def _count(pods: Sequence[model.Pod]) -> str:
    return f"{len(pods)} pod{'s' * (len(pods) != 1)}"
