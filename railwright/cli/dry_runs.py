"""Asks the API server what it would do to a pod: a create with dryRun=All, by the caller's own permissions.

The API server runs its whole admission, calls our webhook and stores nothing. The webhook writes no Event on a dry run.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import names
from railwright.fabric.reasons.codes import AdmissionCode

Tree = dict[str, Any]
_OURS = r'"(?:namespaced-)?pods\.railwright\.io"'  # webhooks of manifests/base/admission.yaml that review pods
_DENIED = re.compile(rf"admission webhook {_OURS} denied the request: ", re.ASCII)
_NOT_CALLED = re.compile(rf"failed calling webhook {_OURS}: ", re.ASCII)
_NOT_INJECTED = re.compile(r"ValidatingAdmissionPolicy 'railwright-injected\S*' .*? denied request: ", re.ASCII)
_OTHER_NOT_CALLED = "failed calling webhook "
_NO_RIGHT = "forbidden: User "  # of RBAC; a rejection by admission names the pod instead
_TOKEN_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b", re.ASCII)  # the API server draws the suffix
_SERVER_FIELDS = ("uid", "creationTimestamp", "managedFields", "generation", "resourceVersion", "selfLink")
_REJECTIONS = frozenset({400, 403, 409, 422})  # by admission, validation or another object of the same name
_UNENFORCED = (f"{AdmissionCode.WOULD_INJECT}: ", f"{AdmissionCode.WOULD_REJECT}: ")  # warnings of mode `warn`
_AT_ONCE = 6  # dry runs
_MAX_GENERATE_NAME = 58  # characters before the five that the API server appends


class Admitted(msgspec.Struct, frozen=True):
    """The pod would be created. `before` is the same pod as the API server completes it without railwright."""

    before: Tree
    after: Tree
    warnings: tuple[str, ...] = ()


class Rejected(msgspec.Struct, frozen=True):
    """The pod would not be created; the message is the webhook's, or says why the API server rejects it."""

    message: str


class Uninjected(msgspec.Struct, frozen=True):
    """The pod opted in and would be created without a call of the webhook."""

    reason: str = "the API server creates such a pod without calling railwright's webhook"


class Unanswered(msgspec.Struct, frozen=True):
    """The result of a dry run is unknown, for this reason."""

    reason: str


Answer = Admitted | Rejected | Uninjected | Unanswered


async def ask_all(client: clients.Client, pods: Sequence[Tree]) -> list[Answer]:
    """Dry-run each pod, see `ask`."""
    semaphore = asyncio.Semaphore(_AT_ONCE)

    with output.show_progress("dry runs", total=len(pods)) as advance:

        async def ask_one(pod: Tree) -> Answer:
            async with semaphore:
                reply = await ask(client, pod)
            advance()
            return reply

        return await asyncio.gather(*map(ask_one, pods))


async def ask(client: clients.Client, pod: Tree) -> Answer:
    """Dry-run a pod, whose metadata has a namespace. Raise ClusterError without an answer."""
    try:
        body, warnings = await _create(client, pod)
    except errors.ApiError as error:
        return _describe_error(error, pod["metadata"]["namespace"])
    after = _read(body, pod, client.host)
    if names.INJECTION not in (after["metadata"].get("annotations") or {}):
        return _describe_missing_record(after, warnings)
    return Admitted(await _complete_without_us(client, pod), after, warnings)


async def _create(client: clients.Client, pod: Tree) -> tuple[bytes, tuple[str, ...]]:
    """Return the pod as created, and warnings. Uses a generated name if a pod of its name exists already."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
    try:
        return await client.create(path, pod)
    except errors.ApiError as error:
        if error.status != 409 or "name" not in pod["metadata"]:
            raise
    metadata = {key: value for key, value in pod["metadata"].items() if key != "name"}
    renamed = {**pod, "metadata": {**metadata, "generateName": pod["metadata"]["name"][:_MAX_GENERATE_NAME]}}
    return await client.create(path, renamed)


async def _complete_without_us(client: clients.Client, pod: Tree) -> Tree:
    """Return the pod as the API server completes it if it opts out; as it is if that pod is rejected."""
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    opted_out = {**pod, "metadata": {**metadata, "labels": {**labels, names.FABRIC: names.FABRIC_NONE}}}
    try:
        body, _ = await _create(client, opted_out)
    except errors.ApiError:
        return pod
    before = _read(body, pod, client.host)
    own_labels = {key: value for key, value in before["metadata"]["labels"].items() if key != names.FABRIC}
    own_labels |= {names.FABRIC: labels[names.FABRIC]} if names.FABRIC in labels else {}
    own_metadata = before["metadata"] | {"labels": own_labels}
    return before | {"metadata": {key: value for key, value in own_metadata.items() if value}}


def _read(body: bytes, pod: Tree, host: str) -> Tree:
    """Return a created pod, with the name it was given, and without what differs from one creation to the next."""
    try:
        created: Tree = msgspec.json.decode(_TOKEN_VOLUME.sub("kube-api-access", body.decode()), type=Tree)
        metadata = created["metadata"]
    except (*watch_wire.UNREADABLE, KeyError) as error:
        raise errors.build_foreign(host, "pods", str(error)) from None
    written = {key: pod["metadata"][key] for key in ("name", "generateName") if key in pod["metadata"]}
    own = {key: value for key, value in metadata.items() if key not in (*_SERVER_FIELDS, "name", "generateName")}
    return {key: value for key, value in created.items() if key != "status"} | {"metadata": {**written, **own}}


def _describe_missing_record(pod: Tree, warnings: tuple[str, ...]) -> Answer:
    """Return the answer for a pod without an injection record, whose absence a warning of the webhook may explain."""
    label = (pod["metadata"].get("labels") or {}).get(names.FABRIC, names.FABRIC_NONE)
    is_explained = any(names.INJECTION in warning or warning.startswith(_UNENFORCED) for warning in warnings)
    if label == names.FABRIC_NONE or is_explained:
        return Admitted(pod, pod, warnings)
    return Uninjected()


def _describe_error(error: errors.ApiError, namespace: str) -> Answer:
    message = error.message
    if error.foreign:
        raise error
    if _NO_RIGHT in message:
        return Unanswered(f"you may not create pods in namespace {namespace}")
    if (not_called := _NOT_CALLED.search(message)) is not None:
        cause = errors.quote_message(message[not_called.end() :])
        return Rejected(f"the API server could not call railwright's webhook{cause and f': {cause}'}")
    if (not_injected := _NOT_INJECTED.search(message)) is not None:
        return Rejected(f"the API server did not call railwright's webhook: {message[not_injected.end() :]}")
    if error.status == 404:
        return Unanswered(f"namespace {namespace} does not exist")
    if error.status in _REJECTIONS or _OTHER_NOT_CALLED in message:
        denied = _DENIED.search(message)
        return Rejected(message[denied.end() :] if denied else message)
    raise error
