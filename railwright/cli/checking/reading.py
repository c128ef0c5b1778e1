"""From a cluster to what a check sees of it: every source at once, what the caller may, and the dry runs.

Owns which calls are made and how their failures become sentences. Judges nothing.
"""

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib import parse

import msgspec

from railwright.cli.checking import admission, kubernetes, nodes
from railwright.cli.checking import seen as sight
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, listing, watch_wire
from railwright.fabric import names, views

_AT_ONCE = 8  # sources read at a time
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})


class _Found(msgspec.Struct, frozen=True):
    """What came of one source."""

    objects: tuple[Any, ...] = ()
    problem: str = ""
    forbidden: str = ""
    unknown: bool = False


async def look(
    client: clients.Client, *, server: str, namespace: str, probing: str = "", before: bool = False
) -> sight.Seen:
    """All there is to see. Raises nothing of the cluster's: what cannot be read is told in `unread`.

    `probing`: the namespace for dry runs ("" = one that may use the fabric). `before`: no dry runs, but rights.
    """
    now = dt.datetime.now(dt.UTC)
    version = await _read(client, sight.SOURCES[0], namespace)
    if version.problem:  # nothing else would answer either
        unread = {source.name: version.problem for source in sight.SOURCES}
        return sight.Seen(namespace, now, server, unread=unread)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read(source: sight.Source) -> _Found:
        async with turn:
            return await _read(client, source, namespace)

    rest = await asyncio.gather(*map(read, sight.SOURCES[1:]))
    found = dict(zip([source.name for source in sight.SOURCES], [version, *rest], strict=True))
    seen = sight.Seen(
        namespace,
        now,
        server,
        objects={name: each.objects for name, each in found.items()},
        unread={name: each.problem for name, each in found.items() if each.problem},
        forbidden=tuple(each.forbidden for each in found.values() if each.forbidden),
        unknown=frozenset(name for name, each in found.items() if each.unknown),
        may=await _rights(client) if before else {},
    )
    if before:
        return seen
    pods = await _namespaced_pods(client, seen)
    return msgspec.structs.replace(seen, trials=await _trials(client, seen, probing), namespaced_pods=pods)


async def _read(client: clients.Client, source: sight.Source, namespace: str) -> _Found:
    path = source.path.format(namespace=parse.quote(namespace, safe=""))
    try:
        if source.single:
            return _Found((_object(client, path, await client.get(path), source),))
        return _Found(tuple(await listing.listed(client, path, source.view, source.query)))
    except errors.ApiError as error:
        right = source.right.format(namespace=namespace)
        if error.status == 404 and not _at_the_door(source):
            return _Found(unknown=not source.single)
        if error.status == _FORBIDDEN:
            return _Found(problem=f"you may not {right} (403 Forbidden)", forbidden=right)
        return _Found(problem=error.sentence)
    except errors.ClusterError as error:
        return _Found(problem=error.sentence)
    except watch_wire.UNREADABLE as error:
        told = failures.quotable(str(error))
        return _Found(problem=f"an object of {source.name} cannot be understood{told and f': {told}'}")


def _at_the_door(source: sight.Source) -> bool:
    """True for the source that every API server has."""
    return source is sight.SOURCES[0]


def _object(client: clients.Client, path: str, body: bytes, source: sight.Source) -> Any:
    """Return a single object. Raises ForeignError for what no API server answers."""
    try:
        found = msgspec.json.decode(body, type=source.view)
    except watch_wire.UNREADABLE as error:
        raise failures.foreign(client.host, path, str(error)) from error
    if sight.dig(found, "gitVersion" if _at_the_door(source) else "metadata") is None:
        raise failures.foreign(client.host, path)
    return found


async def _namespaced_pods(client: clients.Client, seen: sight.Seen) -> tuple[views.Pod, ...]:
    """Pods of namespaces that opt in; of those that may not be read, none."""
    opted = [
        str(sight.name_of(each))
        for each in seen.all("namespaces")
        if (sight.dig(each, "metadata", "labels") or {}).get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE
    ]
    found: list[views.Pod] = []
    for each in opted:
        path = f"/api/v1/namespaces/{each}/pods"
        found += (await _read(client, sight.Source("pods", path, f"list pods -n {each}", view=views.Pod), each)).objects
    return tuple(found)


async def _rights(client: clients.Client) -> Mapping[str, bool]:
    """Whether the caller may do each thing of an installation, by the API server's own word."""

    async def ask(verb: str, group: str, resource: str) -> bool | None:
        attributes = {"verb": verb, "group": group, "resource": resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = msgspec.json.decode(await client.post(_REVIEW, msgspec.json.encode(body)))
        except (errors.ClusterError, msgspec.MsgspecError):
            return None
        return sight.dig(answer, "status", "allowed") is True

    answers = await asyncio.gather(*(ask(*each) for each in kubernetes.INSTALLING))
    told = zip(kubernetes.INSTALLING, answers, strict=True)
    return {kubernetes.right(*each): allowed for each, allowed in told if allowed is not None}


async def _trials(client: clients.Client, seen: sight.Seen, probing: str) -> tuple[sight.Trial, ...]:
    accelerator = nodes.accelerators(seen)[0]
    wanted = admission.plans(seen, probing)
    return tuple(await asyncio.gather(*(_tried(client, plan, accelerator) for plan in wanted)))


async def _tried(client: clients.Client, plan: admission.Plan, accelerator: str) -> sight.Trial:
    if plan.problem:
        return sight.Trial(plan.fabric, problem=plan.problem)
    path = f"/api/v1/namespaces/{plan.namespace}/pods?dryRun=All"
    try:
        made = await client.post(path, msgspec.json.encode(admission.pod(plan, accelerator)))
        return sight.Trial(plan.fabric, plan.namespace, pod=msgspec.json.decode(made))
    except errors.ApiError as error:
        forbidden = error.status in _DENIED and "is forbidden: User " in error.message
        return sight.Trial(plan.fabric, plan.namespace, refusal=error.message, forbidden=forbidden)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        told = error.sentence if isinstance(error, errors.ClusterError) else "the answer is no pod"
        return sight.Trial(plan.fabric, plan.namespace, refusal=told)
