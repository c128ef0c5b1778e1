"""Runs `railwright verify`: reports from the logs of a job, or from the counters of its ranks, whether it uses RDMA.

Reports come from `railwright.fabric.verification`. Creates nothing in a cluster. `verify job/NAME` reads pods and their
logs in one namespace, and compares them with what their preflights found, or with their injection records.
"""

import argparse
import asyncio
import contextlib
import functools
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.cli import cluster_access, formats, job_pods, options, output
from railwright.cluster import client as clients
from railwright.cluster import errors
from railwright.fabric import intent, names, text
from railwright.fabric.verification import counters, found_rails, logs, report

_MAX_NAMED = 3  # pods of a rail, or containers, that a line names
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}
_CODES = {report.RDMA: output.OK, report.UNKNOWN: output.UNUSABLE}


def verify_rdma(arguments: argparse.Namespace) -> int:
    """Print the report. Return 0 for RDMA on every rail, 1 for TCP, missing rails or failures, 2 if it is not known.

    Raises UnreadableError and ClusterError.
    """
    for name, number in (("rails", arguments.rails), ("seconds", arguments.seconds)):
        if number is not None and number < 1:
            raise output.UnreadableError(f"--{name} {number}: must be 1 or more")
    words = arguments.files
    if (subject := job_pods.parse_object("verify", words)) is not None:
        return (_verify_counters if arguments.counters else _verify_job)(arguments, *subject)
    if arguments.counters:
        raise output.UnreadableError("--counters reads pods of the cluster, not files; give KIND/NAME, as job/NAME")
    options.check_paths(words)
    files = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in words]
    with output.show_progress("reading the log"):
        assessment = report.assess_logs(
            [(name, _read_log(path)) for name, path in files], report.ExpectedRails(arguments.rails)
        )
    return _print_report(assessment, arguments)


def _print_report(assessment: report.Report | counters.Report, arguments: argparse.Namespace) -> int:
    """Print the report in the format of the options, and return the exit code."""
    if formats.is_document(arguments.output):
        formats.print_document(assessment, arguments.output)
    else:
        output.print_styled((assessment.line, _STYLES[assessment.state]))
    return _CODES.get(assessment.state, output.FINDINGS)


def _read_log(path: str) -> Iterator[str]:
    """Yield the complete lines of a log, `-` for standard input; bytes that are not UTF-8 are replaced.

    A last line without a line break is dropped, because it was truncated and could be misread.
    """
    try:
        # pathlib would change the path in messages
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:  # noqa: PTH123
            for line in file:
                yield line.decode(errors="replace") if line.endswith(b"\n") else ""
    except OSError as error:
        raise output.UnreadableError(f"{path}: {error.strerror or error}") from None


# --- the logs of a job's pods -----------------------------------------------------------------------------

_MAX_BYTES = 64 * 1024 * 1024  # of a container's log: NCCL writes at the start of a job
_MAX_PREFLIGHT_BYTES = 1024 * 1024
_MAX_LINES = 50_000  # about the network that are kept of a container
_MAX_CONCURRENT_LOGS = 16


class _Log(NamedTuple):
    """The log of a container: its first line, and its lines about the network."""

    pod: job_pods.Pod
    container: str
    lines: Sequence[str] = ()
    problem: str = ""  # why there is no log

    @property
    def name(self) -> str:
        """The names of pod and container, for messages."""
        return f"{self.pod.metadata.name} container {self.container}"


def _verify_job(arguments: argparse.Namespace, kind: str, name: str) -> int:
    """Report from the logs of a job's pods whether they used RDMA."""
    namespace, name = job_pods.resolve_name(arguments, kind, name)
    expected = report.ExpectedRails(arguments.rails)

    async def read_logs(client: clients.Client) -> report.Report:
        pods = await job_pods.find_pods(client, namespace, kind, name)
        by_pod = {} if expected.rails is not None else await _read_expectations(client, namespace, pods)
        containers = [(pod, container) for pod in pods for container in _choose_containers(pod)]
        fetch = functools.partial(_fetch_log, client, namespace)
        found = await cluster_access.call_for_each(fetch, containers, at_once=_MAX_CONCURRENT_LOGS)
        for log in found:
            if log.problem:
                output.print_note(f"{kind}/{name}: {log.name}: {log.problem}")
        result = report.assess_logs([(log.pod.metadata.name, log.lines) for log in found], expected, by_pod)
        return _complete_report(result, found, pods)

    return _print_report(cluster_access.run_with_client(arguments, read_logs), arguments)


async def _read_expectations(
    client: clients.Client, namespace: str, pods: Sequence[job_pods.Pod]
) -> dict[str, report.ExpectedRails]:
    """Return the rails that each pod should use, by its name and by its host name.

    They are those that the pod's preflight found, otherwise the number in its injection record.
    """

    async def read_expectation(pod: job_pods.Pod) -> report.ExpectedRails:
        found = found_rails.FoundRails()
        if any(container.name == names.PREFLIGHT_CONTAINER for container in pod.spec.init_containers or ()):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod.metadata.name}/log"
            query = {"container": names.PREFLIGHT_CONTAINER, "limitBytes": str(_MAX_PREFLIGHT_BYTES)}
            with contextlib.suppress(errors.ApiError):  # it has not started
                found = found_rails.parse_rails((await client.get(path, query)).decode(errors="replace"))
        if found.rails:
            devices = {rail.device: rail.name for rail in found.rails if rail.device}
            return report.ExpectedRails(len(found.rails), devices)
        return report.ExpectedRails(len(intent.read_record(pod).rails or ()) or None)

    by_pod: dict[str, report.ExpectedRails] = {}
    expectations = await cluster_access.call_for_each(read_expectation, pods, at_once=_MAX_CONCURRENT_LOGS)
    for pod, own in zip(pods, expectations, strict=True):
        by_pod[pod.metadata.name] = own
        by_pod.setdefault(pod.spec.hostname or pod.metadata.name, own)  # as NCCL names the host
    return by_pod


def _choose_containers(pod: job_pods.Pod) -> Sequence[str]:
    """Return the containers that the pod's record names, or all: the log of a launcher has the output of its ranks."""
    return intent.read_record(pod).containers or tuple(container.name for container in pod.spec.containers)


async def _fetch_log(client: clients.Client, namespace: str, source: tuple[job_pods.Pod, str]) -> _Log:
    """Return the log of a container, without lines if the pod's preflight failed.

    Raises errors that affect every log, such as a missing right.
    """
    pod, container = source
    if pod.preflight_failure:
        return _Log(pod, container)
    query = {"container": container, "limitBytes": str(_MAX_BYTES)}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod.metadata.name}/log"
    lines: list[str] = []
    try:
        async for line in client.stream_lines(path, query, clients.CONNECT_SECONDS * 6):
            decoded = line.decode(errors="replace")
            # The first line tells a log without NCCL's lines from an empty one.
            if not lines or (len(lines) < _MAX_LINES and logs.is_relevant(decoded)):
                lines.append(f"[pod/{pod.metadata.name}/{container}] {decoded}")
    except errors.ApiError as error:
        if error.status in (401, 403) or error.foreign:
            raise
        return _Log(pod, container, lines, f"no log: {error.message}")
    return _Log(pod, container, lines)


def _complete_report(result: report.Report, found: Sequence[_Log], pods: Sequence[job_pods.Pod]) -> report.Report:
    """Return the report, changed if pods have not started or if logs could not be read."""
    if result.state == report.RDMA:  # of all ranks: a pod that has ended without a log was replaced
        pods = [pod for pod in pods if not pod.status.has_ended]
    if result.state in (report.RDMA, report.UNKNOWN) and any(pod.preflight_failure for pod in pods):
        line = f"did not run: {_describe_unstarted(pods)}"
        return msgspec.structs.replace(result, state=report.FAILED, line=line, why=(line,))
    read, unread = {log.pod.metadata.name for log in found if log.lines}, [log.name for log in found if log.problem]
    cause = _describe_unstarted([pod for pod in pods if pod.metadata.name not in read])
    if unread and not cause and (not read or result.state == report.RDMA):
        cause = f"the logs of {text.join_first(unread, _MAX_NAMED)} cannot be read"
    if not cause or result.state not in (report.RDMA, report.UNKNOWN):
        return result
    return msgspec.structs.replace(result, state=report.UNKNOWN, line=f"cannot tell: {cause}", why=(cause,))


def _describe_unstarted(pods: Sequence[job_pods.Pod]) -> str:
    """Return text that names the pods whose ranks have not started, with the cause; "" if all have."""
    by_cause: dict[str, list[str]] = {}
    for pod in pods:
        pending = "Pending: no container has started" if pod.status.phase == job_pods.PENDING else ""
        if cause := pod.preflight_failure or pending:
            by_cause.setdefault(cause, []).append(pod.metadata.name)
    causes = [f"{text.join_first(stopped, _MAX_NAMED)}: {cause}" for cause, stopped in by_cause.items()]
    return "; ".join(causes[:_MAX_NAMED])


# --- counters ---------------------------------------------------------------------------------------------


def _verify_counters(arguments: argparse.Namespace, kind: str, name: str) -> int:
    """Read the counters of each rank twice, and report the traffic in between."""
    namespace, name = job_pods.resolve_name(arguments, kind, name)

    async def measure_traffic(client: clients.Client) -> counters.Report:
        pods = await job_pods.find_pods(client, namespace, kind, name)
        pods = [pod for pod in pods if intent.read_record(pod).rails] or pods  # a launcher has none
        started = [pod for pod in pods if pod.status.phase != job_pods.PENDING and not pod.preflight_failure]
        unstarted = _describe_unstarted(pods)
        if not started:
            has_failed = any(pod.preflight_failure for pod in pods)
            state, beginning = (report.FAILED, "did not run") if has_failed else (report.UNKNOWN, "cannot tell")
            return counters.Report(state, f"{beginning}: {unstarted}", 0, (), {})
        if unstarted:
            output.print_note(unstarted)
        before = await _read_counters(client, namespace, started)
        if before:
            await asyncio.sleep(arguments.seconds)
        after = await _read_counters(client, namespace, [pod for pod in pods if pod.metadata.name in before])
        readings = {name: (before[name], reading) for name, reading in after.items()}
        expected = {pod.metadata.name: len(rails) for pod in pods if (rails := intent.read_record(pod).rails)}
        unread = [pod.metadata.name for pod in pods if pod.metadata.name not in readings]
        return counters.assess_traffic(readings, expected, unread)

    result = cluster_access.run_with_client(arguments, measure_traffic)
    code = _print_report(result, arguments)
    if not formats.is_document(arguments.output):
        for rail in dict.fromkeys(traffic.rail for traffic in result.rails):
            rows = [traffic for traffic in result.rails if traffic.rail == rail]
            idle = [traffic.pod for traffic in rows if traffic.idle]
            total = counters.format_bytes(sum(traffic.total for traffic in rows))
            end = f"; idle in {text.join_first(idle, _MAX_NAMED)}" if idle else ""
            style = _STYLES[counters.PARTIAL if idle else counters.RDMA]
            output.print_styled((f"  {rail}: ", ""), (f"{total}{end}", style))
    return code


async def _read_counters(
    client: clients.Client, namespace: str, pods: Sequence[job_pods.Pod]
) -> Mapping[str, counters.Reading]:
    """Return the counters of each pod by its name. Print a note about each pod whose counters cannot be read."""
    readings: dict[str, counters.Reading] = {}

    async def read_pod(pod: job_pods.Pod) -> None:
        name, container = pod.metadata.name, next(iter(_choose_containers(pod)))
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/exec"
        try:
            readings[name] = counters.parse_output(await client.execute_command(path, container, counters.COMMAND))
        except errors.ClusterError as error:  # also of a node that does not answer
            if isinstance(error, errors.ApiError) and error.status in (401, 403):
                raise
            reason = error.message if isinstance(error, errors.ApiError) else error.sentence
            output.print_note(f"{name} container {container}: cannot read its counters: {reason}")

    await cluster_access.call_for_each(read_pod, pods, at_once=_MAX_CONCURRENT_LOGS)
    return readings
