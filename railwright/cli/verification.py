"""Runs `railwright verify`: reports what the logs of a job show.

Reports come from `railwright.fabric.verification`. Creates nothing in a cluster. `verify job/NAME` reads pods and their
logs in one namespace, and compares them with the pods' own records.
"""

import argparse
import asyncio
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

from railwright.cli import cluster_access, formats, options, output, policies, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs, watch_wire
from railwright.fabric import intent, text, views
from railwright.fabric.verification import logs, report
from railwright.fabric.workloads import membership

# --- the log ----------------------------------------------------------------------------------------------


def report_log(arguments: argparse.Namespace) -> int:
    """Return 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the log does not tell.

    Raises UnreadableError and ClusterError.
    """
    paths = [*arguments.words, *arguments.filename]
    if paths.count("-") > 1:
        raise output.UnreadableError("verify log: - (standard input) can be read once")
    expected = build_expectation(
        arguments,
        has_source=bool(
            arguments.policy
            or options.get_cluster(arguments).is_given
            or (arguments.fabric and arguments.rails is None)
        ),
    )
    files = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in paths]
    with output.show_progress("reading the log"):
        assessment = report.assess_logs([(name, _read_log(path)) for name, path in files], expected)
    return print_report(assessment, arguments)


def print_report(assessment: report.Report, arguments: argparse.Namespace) -> int:
    """Print the report in the format of the options, and return the exit code."""
    if formats.is_document(arguments.output):
        formats.print_document(assessment, arguments.output)
    else:
        output.print_styled((assessment.line, _STYLES[assessment.state]))
        if arguments.output == options.WIDE:
            _print_pods(assessment, headers=not arguments.no_headers)
        if arguments.output == options.WIDE or arguments.form != "log":
            _print_rails(assessment)
    codes = {report.RDMA: output.OK, report.UNKNOWN: output.UNUSABLE}
    return codes.get(assessment.state, output.FINDINGS)


def _read_log(path: str) -> Iterator[str]:
    """Yield the complete lines of a log, `-` for standard input; bytes that are not UTF-8 are replaced.

    The text of a last line without a line break is dropped: it was truncated, and the rest could be misread.
    """
    if path == "-":
        yield from _read_lines(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would change the path in messages
            yield from _read_lines(file)
    except OSError as error:
        raise output.UnreadableError(f"{path}: {error.strerror or error}") from None


def _read_lines(file: BinaryIO) -> Iterator[str]:
    for line in file:
        yield line.decode(errors="replace") if line.endswith(b"\n") else ""


def build_expectation(arguments: argparse.Namespace, *, has_source: bool) -> report.Expected:
    """Return what the options say that each pod should use. `has_source`: the policy is read, from a file or a cluster.

    Raises UnreadableError and ClusterError.
    """
    if arguments.rails is not None and arguments.rails < 1:
        raise output.UnreadableError(f"--rails {arguments.rails}: must be 1 or more")
    if not has_source:
        return report.Expected(rails=arguments.rails)
    policy = policy_sources.read(arguments.policy, options.get_cluster(arguments))
    fabric = policies.find_fabric(policy, arguments.fabric)
    if not policy.document.fabrics[fabric].rails:
        raise output.UnreadableError(f"--fabric {fabric}: has no rails, so there is no RDMA to be seen")
    expected = report.expect(policy.document, fabric)
    return expected if arguments.rails is None else msgspec.structs.replace(expected, rails=arguments.rails)


def _print_pods(assessment: report.Report, *, headers: bool) -> None:
    columns = (
        formats.Column("POD"),
        formats.Column("STATE"),
        formats.Column("NETWORK", drop=2),
        formats.Column("RAILS"),
        formats.Column("GPUDIRECT", drop=1),
        formats.Column("DEVICES", drop=4),
        formats.Column("WHY", drop=3, cut=True),
    )
    rows = [
        (
            pod.name,
            pod.state,
            pod.transport or "-",
            f"{'?' if pod.rails is None else pod.rails}/{'?' if assessment.rails is None else assessment.rails}",
            f"{pod.channels_direct}/{pod.channels}",
            ",".join(pod.used) or "-",
            "; ".join(pod.why) or "-",
        )
        for pod in assessment.pods
    ]
    formats.print_table(columns, rows, headers=headers)


def _print_rails(assessment: report.Report) -> None:
    """Print a line for each rail: the pods that used it, and the first that did not.

    Rails without known device names get one line together, after the devices that the pods used.
    """
    unknown = [rail for rail in assessment.by_rail if rail.unknown and not (rail.devices or rail.used or rail.unused)]
    if unknown and any(pod.used for pod in assessment.pods):
        ports = sorted({port for pod in assessment.pods for port in pod.used})
        for port in ports:
            pods = [pod.name for pod in assessment.pods if port in pod.used]
            count = text.format_count(len(assessment.pods), "pod")
            output.print_styled((f"  {port}: ", ""), (f"RDMA in {len(pods)} of {count}", _STYLES[report.RDMA]))
        rail_names = text.join_first([rail.name for rail in unknown], _NAMED_RAILS)
        cause = "the device names are not known; --fabric NAME reads them from the policy"
        output.print_styled((f"  {rail_names}: ", ""), (f"unknown: {cause}", _STYLES[report.UNKNOWN]))
    for rail in assessment.by_rail:
        if rail not in unknown or not any(pod.used for pod in assessment.pods):
            _print_rail(rail)


def _print_rail(rail: report.Rail) -> None:
    total = len(rail.used) + len(rail.unused) + len(rail.unknown)
    name = f"{rail.name} ({', '.join(rail.devices)})" if rail.devices else rail.name
    parts = [f"RDMA in {len(rail.used)} of {text.format_count(total, 'pod')}"]
    for word, pods in (("not in", rail.unused), ("unknown in", rail.unknown)):
        if pods:
            parts.append(f"{word} {text.join_first(pods, _NAMED)}")
    output.print_styled((f"  {name}: ", ""), ("; ".join(parts), _STYLES[rail.state]))


_NAMED_RAILS = 8  # in one line
_NAMED = 3  # pods of a rail, or containers, that a line names
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}


# --- the logs of a job's pods -----------------------------------------------------------------------------

_MAX_BYTES = 64 * 1024 * 1024  # of a container's log: NCCL writes at the start of a job
_MAX_LINES = 50_000  # about the network that are kept of a container
_MAX_PODS = 4096
_AT_ONCE = 16  # logs that are read at the same time; with --follow all
_QUIET_SECONDS = 24 * 3600.0  # a job may log nothing for hours
_RETRY_SECONDS = 2.0  # until a container has started
_REPORT_SECONDS = 1.0  # between two reports with --follow
_PENDING = "Pending"  # phase of a pod
_NOT_STARTED = 400  # status of the log of a container that waits to start


class _PodSpec(views.PodSpec, frozen=True):
    """spec of a pod, with the name that its processes see as that of the host."""

    hostname: str = ""


class _Pod(views.Pod, frozen=True):
    """A pod."""

    spec: _PodSpec = _PodSpec()


class _Source(msgspec.Struct):
    """One container whose log is read, and its first line and those about the network."""

    pod: _Pod
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
    cluster = options.get_cluster(arguments)
    namespace = arguments.namespace or kubeconfigs.find_namespace(cluster.kubeconfig, cluster.context)
    target = f"{arguments.form}/{arguments.name}"
    expected = build_expectation(arguments, has_source=bool(arguments.policy or arguments.fabric))
    is_given = arguments.rails is not None

    async def read(client: clients.Client) -> report.Report:
        pods = await find_pods(client, namespace, arguments.form, arguments.name)
        sources = [_Source(pod, name) for pod in pods for name in _choose_containers(pod)]
        if arguments.follow:
            return await _follow(client, namespace, sources, expected, is_given=is_given)
        limit = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*[_read(client, namespace, source, limit) for source in sources])
        for source in sources:
            if source.problem:
                output.print_note(f"{target}: {source.name}: {source.problem}")
        return _assess(sources, expected, is_given=is_given)

    return print_report(cluster_access.run(cluster, read), arguments)


async def find_pods(client: clients.Client, namespace: str, form: str, name: str) -> list[_Pod]:
    """Return a pod, or the pods of a job or gang in order of rank. Raise UnreadableError if there are none."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    if form == "pod":
        return [await cluster_access.read_object(client, f"{path}/{name}", _Pod)]
    pods: list[_Pod] = await watch_wire.list_objects(client, path, _Pod)
    members = [pod for pod in pods if _is_member(pod, namespace, name)]
    if not members:
        raise output.UnreadableError(
            f"{form}/{name}: no pod in namespace {namespace} belongs to it; those of a finished job may be "
            "deleted. `kubectl get pods --show-labels` shows what there is; -n NAMESPACE selects another namespace"
        )
    if len(members) > _MAX_PODS:
        pods_text = text.format_count(len(members), "pod")
        raise output.UnreadableError(f"{form}/{name}: {pods_text}; the limit is {_MAX_PODS}")
    return sorted(members, key=membership.find_rank)


def _is_member(pod: _Pod, namespace: str, name: str) -> bool:
    """True if the pod's gang, a label of its framework or its controller has this name.

    The name of a gang may have its further parts, as `railwright gangs` shows it.
    """
    metadata = pod.metadata
    key = membership.find_gang(pod)
    gang = key.removeprefix(f"{namespace}/")
    owner = metadata.controller
    users_name = membership.find_gang_name(pod, key)
    named = {gang, *gang.split("/"), users_name, *membership.list_job_names(pod), owner.name if owner else ""}
    return bool(name) and name.removeprefix(f"{namespace}/") in named


def _choose_containers(pod: _Pod) -> Sequence[str]:
    """Return the containers that railwright chose as ranks, otherwise all: a launcher logs what its ranks print."""
    return intent.read_record(pod).containers or tuple(container.name for container in pod.spec.containers)


async def _read(client: clients.Client, namespace: str, source: _Source, limit: asyncio.Semaphore) -> None:
    async with limit:
        try:
            await _collect(client, namespace, source, follow=False)
        except errors.ApiError as error:
            _record_problem(source, error)


def _record_problem(source: _Source, error: errors.ApiError) -> None:
    """Record that one log cannot be read. Raise the error if no log can: without the right to read them."""
    if error.status in (401, 403) or error.foreign:
        raise error
    source.problem = f"no log: {error.message}"


async def _collect(client: clients.Client, namespace: str, source: _Source, *, follow: bool) -> None:
    query = {"container": source.container, "limitBytes": str(_MAX_BYTES)} | ({"follow": "true"} if follow else {})
    path = f"/api/v1/namespaces/{namespace}/pods/{source.pod.metadata.name}/log"
    source.lines.clear()
    async for line in client.stream(path, query, _QUIET_SECONDS if follow else clients.CONNECT_SECONDS * 6):
        decoded = line.decode(errors="replace")
        # The first line tells a log without NCCL's lines from an empty one.
        if not source.lines or (len(source.lines) < _MAX_LINES and logs.is_relevant(decoded)):
            source.lines.append(f"[pod/{source.pod.metadata.name}/{source.container}] {decoded}")


def _assess(sources: Sequence[_Source], expected: report.Expected, *, is_given: bool) -> report.Report:
    """Return the report. `is_given`: the user gave the number of rails, which then counts for all pods."""
    by_pod: dict[str, report.Expected] = {}
    for pod in {source.pod.metadata.name: source.pod for source in sources}.values():
        own = report.expect_of_pod(pod)
        if own.rails is not None and not is_given:
            own = report.add_devices(own, expected)
            by_pod[pod.metadata.name] = own
            by_pod.setdefault(pod.spec.hostname or pod.metadata.name, own)  # as NCCL names the host
    result = report.assess_logs([(source.pod.metadata.name, source.lines) for source in sources], expected, by_pod)
    is_empty = not any(source.lines for source in sources)
    cause = _explain_missing_logs(sources) if is_empty or result.state == report.RDMA else ""
    if not cause:
        return result
    return msgspec.structs.replace(result, state=report.UNKNOWN, line=f"cannot tell: {cause}", why=(cause,))


def _explain_missing_logs(sources: Sequence[_Source]) -> str:
    """Return why logs are missing: pods have not started, or logs cannot be read or are empty; "" if none is."""
    silent = [source for source in sources if not source.lines]
    pending = dict.fromkeys(source.pod.metadata.name for source in silent if source.pod.status.phase == _PENDING)
    unread = [source.name for source in sources if source.problem]
    if pending:
        verb = "is" if len(pending) == 1 else "are"
        return f"{text.join_first(pending, _NAMED)} {verb} {_PENDING}: no container has started"
    if unread:
        return f"the logs of {text.join_first(unread, _NAMED)} cannot be read"
    return "the logs are empty: no container has printed anything" if len(silent) == len(sources) else ""


async def _follow(
    client: clients.Client,
    namespace: str,
    sources: Sequence[_Source],
    expected: report.Expected,
    *,
    is_given: bool,
) -> report.Report:
    """Read all logs until they end, and print the line of the report whenever it changes. Return the last report."""
    readers = [asyncio.create_task(_follow_one(client, namespace, source)) for source in sources]
    shown, seen, current = "", -1, _assess(sources, expected, is_given=is_given)
    try:
        while True:
            _, running = await asyncio.wait(readers, timeout=_REPORT_SECONDS)
            count = sum(len(source.lines) for source in sources)
            if count != seen or not running:
                seen, current = count, _assess(sources, expected, is_given=is_given)
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


async def _follow_one(client: clients.Client, namespace: str, source: _Source) -> None:
    """Read the log of a container to its end, from when it starts. A pod that is gone has no further lines."""
    while True:
        try:
            await _collect(client, namespace, source, follow=True)
        except errors.ApiError as error:
            if error.status != _NOT_STARTED:
                _record_problem(source, error)
                return
        else:
            return
        await asyncio.sleep(_RETRY_SECONDS)
