"""Describes a namespace after a failed wait: its workloads and Events, and the plane's programs.

The message of a failed wait is often the only result of a run.
"""

import asyncio
import json

import aiohttp

from plane import api, processes

_VOLCANO = ("batch.volcano.sh/v1alpha1/Job", "scheduling.volcano.sh/v1beta1/PodGroup")
_KINDS = (*_VOLCANO, "batch/v1/Job", "Pod")
_LOGS = ("vc-controller-manager", "vc-scheduler")
_OBJECTS, _EVENTS, _LINES, _WIDTH = 6, 20, 8, 500  # at most about 80 lines
_SECONDS = 10  # for each kind of object; the test itself has a time limit


async def describe(client: api.Api, namespace: str, awaited: str) -> str:
    """Return `awaited` and, in further lines, the state of the namespace. For `waiting.wait`."""
    lines = [awaited]

    async def read(kind: str) -> api.Objects:
        try:
            async with asyncio.timeout(_SECONDS):
                return await client.list(kind, namespace)
        except (api.ApiError, LookupError, aiohttp.ClientError, TimeoutError) as error:  # a reason too
            lines.append(f"{kind}: {error!r}")
            return []

    has_volcano = False
    for kind in _KINDS:
        objects = await read(kind)
        has_volcano |= bool(objects) and kind in _VOLCANO
        lines += [f"{kind} {_describe_state(tree)}" for tree in objects[:_OBJECTS]]
        if len(objects) > _OBJECTS:
            lines.append(f"{kind}: {len(objects)} in all")
    events = sorted(await read("Event"), key=_read_time)
    lines += [_describe_event(event) for event in events[-_EVENTS:]]
    programs = processes.list_started()
    lines.append(", ".join(f"{program.name} {program.state}" for program in programs))
    for program in programs:
        if has_volcano and program.name in _LOGS:
            lines += [f"{program.name}: {line}" for line in program.find_lines(namespace, _LINES)]
    return "\n  ".join(line[:_WIDTH] for line in lines)


def _describe_state(tree: api.Object) -> str:
    node = tree.get("spec", {}).get("nodeName")
    return f"{tree['metadata']['name']}{f' on {node}' if node else ''}: {json.dumps(tree.get('status', {}))}"


def _read_time(event: api.Object) -> str:
    last = _get_series(event).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(last or event["metadata"]["creationTimestamp"])


def _get_series(event: api.Object) -> api.Object:
    """Return an Event's series; kube-scheduler sets it, and neither lastTimestamp nor count."""
    return event.get("series") or {}


def _describe_event(event: api.Object) -> str:
    about, count = event["involvedObject"], _get_series(event).get("count") or event.get("count") or 1
    name = f"{about['kind']} {about.get('name', '')}"
    return f"{_read_time(event)} {event.get('reason')} (count {count}) {name}: {event.get('message', '')}"
