"""Waits for changes of objects: running pods, Events, states."""

from collections.abc import Mapping
from typing import Any

from plane import api, diagnosis, waiting


async def wait_running(client: api.Api, namespace: str, labels: str, count: int, *, seconds: float = 60) -> api.Objects:
    """Wait until exactly `count` pods of a label selector run, and none terminates; by name."""

    async def are_running() -> api.Objects:
        listed = await client.list("Pod", namespace, labels=labels)
        phases = {pod["metadata"]["name"]: _read_phase(pod) for pod in listed}
        assert list(phases.values()) == ["Running"] * count, phases
        return sorted(listed, key=lambda pod: str(pod["metadata"]["name"]))

    awaited = f"{count} running pods with labels {labels!r}"
    return await waiting.wait(
        are_running, seconds=seconds, describe=lambda: diagnosis.describe(client, namespace, awaited)
    )


def _read_phase(pod: api.Object) -> str:
    """Return the phase of a pod; a deleted one keeps its phase until kubelet has ended it."""
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else str(pod["status"].get("phase"))


async def wait_event(
    client: api.Api, namespace: str, reason: str, *parts: str, of: str = "", seconds: float = 60
) -> api.Object:
    """Wait for an Event with this reason and all parts in its message, about an object of this name; return it."""
    about = f",involvedObject.name={of}" if of else ""

    async def find_event() -> api.Object:
        listed = await client.list("Event", namespace, fields=f"reason={reason}{about}")
        messages = [read_message(item) for item in listed]
        matches = [item for item in listed if all(part in read_message(item) for part in parts)]
        assert matches, messages
        return matches[0]

    awaited = f"an Event {reason} {of} with {parts}"
    return await waiting.wait(
        find_event, seconds=seconds, describe=lambda: diagnosis.describe(client, namespace, awaited)
    )


def read_message(event: api.Object) -> str:
    """Return the message of an Event of either API."""
    return str(event.get("message") or event.get("note", ""))


async def wait_object(
    client: api.Api, kind: str, name: str, namespace: str | None = None, /, **parts: Any
) -> api.Object:
    """Wait until an object has these parts, at least: `wait_object(client, "Queue", "q", status={"state": "Open"})`."""

    async def has_parts() -> api.Object:
        current = await client.get_or_none(kind, name, namespace) or {}
        assert includes(current, parts), {part: current.get(part) for part in parts}
        return current

    return await waiting.wait(has_parts, seconds=60, describe=f"{kind} {name} to have {parts}")


def includes(value: Any, part: Any) -> bool:
    """True if `value` contains `part`: maps by key, lists if an item of `value` contains each item of `part`."""
    if isinstance(part, Mapping):
        return isinstance(value, Mapping) and all(includes(value.get(key), inner) for key, inner in part.items())
    if isinstance(part, list):
        return isinstance(value, list) and all(any(includes(item, inner) for item in value) for inner in part)
    return bool(value == part)


async def wait_established(client: api.Api, *names: str) -> None:
    """Wait until the API server serves these CustomResourceDefinitions, which it reports as established earlier."""
    good = [{"type": "Established", "status": "True"}]
    for name in names:
        definition = await wait_object(client, "CustomResourceDefinition", name, status={"conditions": good})
        plural, _, group = name.partition(".")
        for version in definition["spec"]["versions"]:
            if version["served"]:
                await _wait_served(client, f"{group}/{version['name']}", plural)


async def _wait_served(client: api.Api, group_version: str, plural: str) -> None:
    async def is_listed() -> bool:
        resources = (await client.request("GET", f"/apis/{group_version}"))["resources"]
        return plural in [resource["name"] for resource in resources]

    await waiting.wait(is_listed, describe=f"{plural} of {group_version} to be served")


async def wait_gone(client: api.Api, kind: str, name: str, namespace: str | None = None) -> None:
    """Wait until there is no such object."""

    async def is_gone() -> bool:
        return await client.get_or_none(kind, name, namespace) is None

    await waiting.wait(is_gone, seconds=90, describe=f"{kind} {name} to be gone")
