"""Runs `railwright verify job/NAME`: reads the logs of a job's pods, and compares them with the pods' own records.

Reads pods and their logs in one namespace, and nothing else.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import msgspec

from railwright.cli import cluster_access, options, output, verification
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs, watch_wire
from railwright.fabric import intent, text, views
from railwright.fabric.verification import log_types, logs, rails, report
from railwright.fabric.workloads import membership

_MAX_BYTES = 64 * 1024 * 1024  # of a container's log: NCCL writes at the start of a job
_MAX_LINES = 50_000  # about the network that are kept of a container
_MAX_PODS = 4096
_AT_ONCE = 16  # logs that are read at the same time; with --follow all
_QUIET_SECONDS = 24 * 3600.0  # a job may log nothing for hours
_RETRY_SECONDS = 2.0  # until a container has started
_REPORT_SECONDS = 1.0  # between two reports with --follow
_NAMED = 3  # containers in a message
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


def verify(arguments: argparse.Namespace) -> int:
    """Return 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the logs do not tell.

    Raises UnreadableError and ClusterError.
    """
    cluster = options.get_cluster(arguments)
    namespace = arguments.namespace or kubeconfigs.find_namespace(cluster.kubeconfig, cluster.context)
    target = f"{arguments.form}/{arguments.name}"
    expected = verification.build_expectation(arguments, has_source=bool(arguments.policy or arguments.fabric))
    is_given = arguments.rails is not None

    async def read(client: clients.Client) -> log_types.Report:
        pods = await find_pods(client, namespace, arguments.form, arguments.name)
        sources = [_Source(pod, name) for pod in pods for name in _choose_containers(pod)]
        if arguments.follow:
            return await _follow(client, namespace, sources, expected, is_given=is_given)
        limit = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*[_read(client, namespace, source, limit) for source in sources])
        for source in sources:
            if source.problem:
                message = f"railwright: {target}: {source.name}: {source.problem}"
                print(output.escape_controls(message), file=sys.stderr)
        return _assess(sources, expected, is_given=is_given)

    return verification.print_report(cluster_access.run(cluster, read), arguments)


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


def _assess(sources: Sequence[_Source], expected: log_types.Expected, *, is_given: bool) -> log_types.Report:
    """Return the report. `is_given`: the user gave the number of rails, which then counts for all pods."""
    by_pod: dict[str, log_types.Expected] = {}
    for pod in {source.pod.metadata.name: source.pod for source in sources}.values():
        own = rails.expect_of_pod(pod)
        if own.rails is not None and not is_given:
            own = rails.add_devices(own, expected)
            by_pod[pod.metadata.name] = own
            by_pod.setdefault(pod.spec.hostname or pod.metadata.name, own)  # as NCCL names the host
    result = report.assess_logs([(source.pod.metadata.name, source.lines) for source in sources], expected, by_pod)
    unread = [source.name for source in sources if source.problem]
    if unread and result.state == log_types.RDMA:
        cause = f"the logs of {text.join_first(unread, _NAMED)} cannot be read"
        result = msgspec.structs.replace(result, state=log_types.UNKNOWN, line=f"cannot tell: {cause}", why=(cause,))
    return result


async def _follow(
    client: clients.Client,
    namespace: str,
    sources: Sequence[_Source],
    expected: log_types.Expected,
    *,
    is_given: bool,
) -> log_types.Report:
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
                    print(f"railwright: {output.escape_controls(shown)}", file=sys.stderr, flush=True)
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
