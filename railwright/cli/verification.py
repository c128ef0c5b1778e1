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

import msgspec

from railwright.cli import cluster_access, formats, job_pods, options, output
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import intent, names, text
from railwright.fabric.verification import counters, found_rails, logs, report

_MAX_NAMED = 3  # pods of a rail, or containers, that a line names
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}
_CODES = {report.RDMA: output.OK, report.UNKNOWN: output.UNUSABLE}


# --- the log ----------------------------------------------------------------------------------------------


def report_log(arguments: argparse.Namespace) -> int:
    """Return 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the log does not tell.

    Raises UnreadableError.
    """
    expected = _build_expectation(arguments)
    paths = options.list_paths(arguments)
    files = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in paths]
    with output.show_progress("reading the log"):
        assessment = report.assess_logs([(name, _read_log(path)) for name, path in files], expected)
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


def _build_expectation(arguments: argparse.Namespace) -> report.Expected:
    """Return the expectation in the option --rails. Raises UnreadableError."""
    if arguments.rails is not None and arguments.rails < 1:
        raise output.UnreadableError(f"--rails {arguments.rails}: must be 1 or more")
    return report.Expected(rails=arguments.rails)


# --- the logs of a job's pods -----------------------------------------------------------------------------

_MAX_BYTES = 64 * 1024 * 1024  # of a container's log: NCCL writes at the start of a job
_MAX_PREFLIGHT_BYTES = 1024 * 1024
_MAX_LINES = 50_000  # about the network that are kept of a container
_MAX_CONCURRENT_LOGS = 16  # logs that are read at the same time; with --follow all
_QUIET_SECONDS = 24 * 3600.0  # a job may log nothing for hours
_RETRY_SECONDS = 2.0  # until a container has started
_REPORT_SECONDS = 1.0  # between two reports with --follow
_PENDING = "Pending"  # phase of a pod
_NOT_STARTED = 400  # status of the log of a container that waits to start


class _Source(msgspec.Struct):
    """A container whose log is read, with its first line and its lines about the network."""

    pod: job_pods.Pod
    container: str
    lines: list[str] = []
    problem: str = ""

    @property
    def name(self) -> str:
        """Pod and container, for messages."""
        return f"{self.pod.metadata.name} container {self.container}"


def verify_job(arguments: argparse.Namespace) -> int:
    """Return 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the logs do not tell.

    Raises UnreadableError and ClusterError.
    """
    namespace = arguments.namespace or kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    if arguments.counters:
        return _verify_counters(arguments, namespace)
    expected = _build_expectation(arguments)

    async def read(client: clients.Client) -> report.Report:
        pods = await job_pods.find(client, namespace, arguments.form, arguments.name)
        by_pod = {} if expected.rails is not None else await _read_expectations(client, namespace, pods)
        sources = [_Source(pod, name) for pod in pods for name in _choose_containers(pod)]
        if arguments.follow:
            return await _follow(client, namespace, sources, expected, by_pod)
        await cluster_access.gather(functools.partial(_read, client, namespace), sources, at_once=_MAX_CONCURRENT_LOGS)
        for source in sources:
            if source.problem:
                output.print_note(f"{arguments.form}/{arguments.name}: {source.name}: {source.problem}")
        return _assess(sources, expected, by_pod)

    return _print_report(cluster_access.run(arguments, read), arguments)


async def _read_expectations(
    client: clients.Client, namespace: str, pods: Sequence[job_pods.Pod]
) -> dict[str, report.Expected]:
    """Return the expectation for each pod, keyed by its name and by its host name.

    It is the rails that the pod's preflight found, otherwise the number of rails in its injection record.
    """

    async def read(pod: job_pods.Pod) -> report.Expected:
        found = found_rails.FoundRails()
        if any(container.name == names.PREFLIGHT_CONTAINER for container in pod.spec.init_containers or ()):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod.metadata.name}/log"
            query = {"container": names.PREFLIGHT_CONTAINER, "limitBytes": str(_MAX_PREFLIGHT_BYTES)}
            with contextlib.suppress(errors.ApiError):  # it has not started
                found = found_rails.read((await client.get(path, query)).decode(errors="replace"))
        if found.rails:
            devices = {rail.device: rail.name for rail in found.rails if rail.device}
            return report.Expected(len(found.rails), devices)
        return report.Expected(len(intent.read_record(pod).rails or ()) or None)

    by_pod: dict[str, report.Expected] = {}
    for pod, own in zip(pods, await cluster_access.gather(read, pods, at_once=_MAX_CONCURRENT_LOGS), strict=True):
        by_pod[pod.metadata.name] = own
        by_pod.setdefault(pod.spec.hostname or pod.metadata.name, own)  # as NCCL names the host
    return by_pod


def _choose_containers(pod: job_pods.Pod) -> Sequence[str]:
    """Return the containers of ranks in the record, otherwise all: a launcher logs the output of its ranks."""
    return intent.read_record(pod).containers or tuple(container.name for container in pod.spec.containers)


async def _read(client: clients.Client, namespace: str, source: _Source, *, follow: bool = False) -> None:
    """Read the log of a container; with `follow` to its end, from when it starts.

    Raises errors that affect every log, such as a missing right; any other error is recorded in the source.
    """
    query = {"container": source.container, "limitBytes": str(_MAX_BYTES)} | ({"follow": "true"} if follow else {})
    path = f"/api/v1/namespaces/{namespace}/pods/{source.pod.metadata.name}/log"
    while not source.pod.preflight_failure or (follow and not source.pod.status.has_ended):  # it is tried again then
        source.lines.clear()
        try:
            async for line in client.stream(path, query, _QUIET_SECONDS if follow else clients.CONNECT_SECONDS * 6):
                decoded = line.decode(errors="replace")
                # The first line tells a log without NCCL's lines from an empty one.
                if not source.lines or (len(source.lines) < _MAX_LINES and logs.is_relevant(decoded)):
                    source.lines.append(f"[pod/{source.pod.metadata.name}/{source.container}] {decoded}")
        except errors.ApiError as error:
            if error.status in (401, 403) or error.foreign:
                raise
            if not follow or error.status != _NOT_STARTED or source.pod.status.has_ended:
                source.problem = f"no log: {error.message}"
                return
        else:
            return
        await asyncio.sleep(_RETRY_SECONDS)
        with contextlib.suppress(output.UnreadableError):  # it was deleted: then it has no log either
            source.pod = await job_pods.read(client, namespace, source.pod.metadata.name)


def _assess(
    sources: Sequence[_Source], expected: report.Expected, by_pod: Mapping[str, report.Expected]
) -> report.Report:
    result = report.assess_logs([(source.pod.metadata.name, source.lines) for source in sources], expected, by_pod)
    is_empty = not any(source.lines for source in sources)
    pods = job_pods.drop_replaced([source.pod for source in sources])
    if result.state == report.RDMA:  # of all ranks: a pod that has ended without a log was replaced
        pods = [pod for pod in pods if not pod.status.has_ended]
    failure = _describe_failed_preflights(pods)
    if failure and result.state in (report.RDMA, report.UNKNOWN):
        return msgspec.structs.replace(result, state=report.FAILED, line=failure, why=(failure,))
    cause = _explain_missing_logs(sources) if is_empty or result.state == report.RDMA else ""
    if not cause:
        return result
    return msgspec.structs.replace(result, state=report.UNKNOWN, line=f"cannot tell: {cause}", why=(cause,))


def _explain_missing_logs(sources: Sequence[_Source]) -> str:
    """Return why logs are missing: pods have not started, or logs cannot be read or are empty; "" if none is."""
    silent = [source for source in sources if not source.lines]
    pending = _describe_pending([source.pod for source in silent])
    unread = [source.name for source in sources if source.problem]
    if pending:
        return pending
    if unread:
        return f"the logs of {text.join_first(unread, _MAX_NAMED)} cannot be read"
    return "the logs are empty: no container has printed anything" if len(silent) == len(sources) else ""


def _describe_pending(pods: Sequence[job_pods.Pod]) -> str:
    """Return a sentence about pods that have not started; "" if there are none."""
    waiting = [pod for pod in pods if pod.status.phase == _PENDING and not pod.preflight_failure]
    pending = dict.fromkeys(pod.metadata.name for pod in waiting)
    verb = "is" if len(pending) == 1 else "are"
    return f"{text.join_first(pending, _MAX_NAMED)} {verb} {_PENDING}: no container has started" if pending else ""


def _describe_failed_preflights(pods: Sequence[job_pods.Pod]) -> str:
    """Return a sentence about pods whose preflight failed, with its messages; "" if there are none."""
    by_message: dict[str, list[str]] = {}
    for pod in pods:
        if pod.preflight_failure:
            by_message.setdefault(pod.preflight_failure, []).append(pod.metadata.name)
    causes = [f"{text.join_first(stopped, _MAX_NAMED)}: {message}" for message, stopped in by_message.items()]
    return f"did not run: {text.join_first(causes, _MAX_NAMED)}" if causes else ""


async def _follow(
    client: clients.Client,
    namespace: str,
    sources: Sequence[_Source],
    expected: report.Expected,
    by_pod: Mapping[str, report.Expected],
) -> report.Report:
    """Read all logs until they end, and print the line of the report whenever it changes. Return the last report."""
    readers = [asyncio.create_task(_read(client, namespace, source, follow=True)) for source in sources]
    shown, seen, current = "", -1, _assess(sources, expected, by_pod)
    try:
        while True:
            _, running = await asyncio.wait(readers, timeout=_REPORT_SECONDS)
            count = sum(len(source.lines) for source in sources)
            if count != seen or not running:
                seen, current = count, _assess(sources, expected, by_pod)
                if current.line != shown and running:
                    shown = current.line
                    output.print_note(shown)
            for reader in readers:
                if reader.done():
                    reader.result()
            if not running:
                return current
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


# --- counters ---------------------------------------------------------------------------------------------


def _verify_counters(arguments: argparse.Namespace, namespace: str) -> int:
    """Read the counters of each rank twice, and report the traffic in between. Exit codes as in `verify_job`."""
    if arguments.seconds < 1:
        raise output.UnreadableError(f"--seconds {arguments.seconds}: must be 1 or more")

    async def measure(client: clients.Client) -> counters.Report:
        pods = await job_pods.find(client, namespace, arguments.form, arguments.name)
        pods = [pod for pod in pods if intent.read_record(pod).rails] or pods  # a launcher has none
        started = [pod for pod in pods if pod.status.phase != _PENDING and not pod.preflight_failure]
        failure, pending = _describe_failed_preflights(job_pods.drop_replaced(pods)), _describe_pending(pods)
        if not started:
            line = failure or f"cannot tell: {pending}"
            return counters.Report(report.FAILED if failure else report.UNKNOWN, line, 0, (), {})
        for cause in filter(None, (failure, pending)):
            output.print_note(cause)
        before = await _read_counters(client, namespace, started)
        if before:
            await asyncio.sleep(arguments.seconds)
        after = await _read_counters(client, namespace, [pod for pod in pods if pod.metadata.name in before])
        readings = {name: (before[name], reading) for name, reading in after.items()}
        expected = {pod.metadata.name: len(rails) for pod in pods if (rails := intent.read_record(pod).rails)}
        unread = [pod.metadata.name for pod in pods if pod.metadata.name not in readings]
        return counters.assess(readings, expected, unread)

    result = cluster_access.run(arguments, measure)
    code = _print_report(result, arguments)
    if not formats.is_document(arguments.output):
        for name in dict.fromkeys(traffic.rail for traffic in result.rails):
            rows = [traffic for traffic in result.rails if traffic.rail == name]
            idle = [traffic.pod for traffic in rows if traffic.idle]
            total = counters.format_bytes(sum(traffic.total for traffic in rows))
            end = f"; idle in {text.join_first(idle, _MAX_NAMED)}" if idle else ""
            style = _STYLES[counters.PARTIAL if idle else counters.RDMA]
            output.print_styled((f"  {name}: ", ""), (f"{total}{end}", style))
    return code


async def _read_counters(
    client: clients.Client, namespace: str, pods: Sequence[job_pods.Pod]
) -> Mapping[str, counters.Reading]:
    """Return the readings by pod, without pods that cannot be read: a note says why."""
    readings: dict[str, counters.Reading] = {}

    async def read(pod: job_pods.Pod) -> None:
        name, container = pod.metadata.name, next(iter(_choose_containers(pod)))
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/exec"
        try:
            readings[name] = counters.parse(await client.execute(path, container, counters.COMMAND))
        except errors.ClusterError as error:  # also of a node that does not answer
            if isinstance(error, errors.ApiError) and error.status in (401, 403):
                raise
            reason = error.message if isinstance(error, errors.ApiError) else error.sentence
            output.print_note(f"{name} container {container}: cannot read its counters: {reason}")

    await cluster_access.gather(read, pods, at_once=_MAX_CONCURRENT_LOGS)
    return readings
