"""Previews pods by dry runs in a cluster: creates with dryRun=All, by the caller's own permissions.

The API server runs its whole admission, calls our webhook and stores nothing. The webhook writes no Event on a dry run.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import policy_sources
from railwright.cli.explanation import previews, templates
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import names, views
from railwright.fabric.injection import keys
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks
from webhook import reviews

Tree = dict[str, Any]
_OURS = r'"(?:namespaced-)?pods\.railwright\.io"'  # webhooks of manifests/base/admission.yaml that review pods
_DENIED = re.compile(rf"admission webhook {_OURS} denied the request: ", re.ASCII)
_OWN_CALL_FAILED = re.compile(rf"failed calling webhook {_OURS}: ", re.ASCII)
_NOT_INJECTED = re.compile(r"ValidatingAdmissionPolicy 'railwright-injected\S*' .*? denied request: ", re.ASCII)
_ANY_CALL_FAILED = "failed calling webhook "
_NO_RIGHT = "forbidden: User "  # of RBAC; a rejection by admission names the pod instead
_UNCALLED = "the API server creates such a pod without calling railwright's webhook"
_UNENFORCED = (
    "the policy is in mode warn, and the admission policies deny pods that are not injected; until it is enforced, set "
    "the chart's value admissionPolicy.mode=Warn"
)
_TOKEN_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b", re.ASCII)  # the API server draws the suffix
_SERVER_FIELDS = ("uid", "creationTimestamp", "managedFields", "generation", "resourceVersion", "selfLink")
_REJECTIONS = frozenset({400, 403, 409, 422})  # by admission, validation or another object of the same name
_CODED = re.compile(r"(?P<code>[A-Z]\w+): (?P<text>.*)", re.ASCII)  # a warning of railwright
_KUBERNETES = "Kubernetes"  # code of a warning that is not railwright's
_UNENFORCED_OUTCOMES = {  # by the code of a warning
    AdmissionCode.WOULD_REJECT: reviews.WOULD_REFUSE,
    AdmissionCode.WOULD_INJECT: reviews.WOULD_PATCH,
}
_MAX_GENERATE_NAME = 58  # characters before the five that the API server appends


class Unanswered(msgspec.Struct, frozen=True):
    """The reason why the result of a dry run is unknown."""

    reason: str


async def ask(client: clients.Client, template: templates.Template) -> previews.AdmissionPreview | Unanswered:
    """Dry-run the pod of a template. Raise ClusterError without an answer."""
    answer = await _ask(client, template, template.pod)
    if not template.inherits_label or isinstance(answer, Unanswered):
        return answer
    would = _find_unenforced(answer.warnings)
    if not would and answer.message != _UNENFORCED:
        return answer
    # In mode warn the label is not copied into the template, so the controller creates the pods without it.
    metadata = template.pod["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != names.FABRIC}
    created = await _ask(client, template, {**template.pod, "metadata": {**metadata, "labels": labels}})
    if isinstance(created, Unanswered) or previews.is_finding(created):
        return created
    warnings = [warning for warning in answer.warnings if warning.code != _KUBERNETES]
    warnings += [warning for warning in created.warnings if warning.code == _KUBERNETES]
    return msgspec.structs.replace(created, outcome=would or reviews.WOULD_PATCH, warnings=warnings)


async def _ask(
    client: clients.Client, template: templates.Template, pod: Tree
) -> previews.AdmissionPreview | Unanswered:
    """Dry-run a pod of a template.

    The webhook does not get every pod, so a dry run has no warning about a misspelt label: it is added here.
    """
    text = f"a dry run in namespace {template.namespace}"
    source = previews.Source(previews.DRY_RUN, text)
    try:
        body, lines = await _create(client, pod)
    except errors.ApiError as error:
        warnings = [_read_warning(line) for line in error.warnings]
        answer = _describe_error(error, template.namespace)
        if _NOT_INJECTED.search(error.message):
            is_unenforced = _find_unenforced(warnings) or await policy_sources.is_unenforced(client)
            answer = _UNENFORCED if is_unenforced else answer
        if isinstance(answer, Unanswered):
            return answer
        return previews.build_preview(template, reviews.REFUSED, source, message=answer, warnings=warnings)
    warnings = [_read_warning(line) for line in lines]
    would = _find_unenforced(warnings)
    before = after = _decode_comparable(body, pod, client.host)
    label = (after["metadata"].get("labels") or {}).get(names.FABRIC, names.FABRIC_NONE)
    if names.INJECTION in (after["metadata"].get("annotations") or {}):
        before = await _complete_without_us(client, pod)
        if policy := previews.read_record(after).policy:
            source = previews.Source(source.kind, f"{text}, policy {policy}")
    elif label != names.FABRIC_NONE and not would and not any(names.INJECTION in warning.text for warning in warnings):
        return previews.build_preview(template, reviews.ALLOWED, source, message=_UNCALLED)
    operations = jsonpatch.make_patch(before, after).patch
    return previews.build_preview(
        template,
        would or (reviews.PATCHED if operations else reviews.ALLOWED),
        source,
        warnings=(
            *keys.check_pod(msgspec.convert(pod["metadata"], views.ObjectMeta)),
            *(warning for warning in warnings if warning.code not in keys.CODES),
        ),
        before=before,
        after=after,
        operations=operations,
    )


def _find_unenforced(warnings: Sequence[reason.Reason]) -> str:
    """Return the outcome of mode warn by its warnings, "" without one of them."""
    codes = {warning.code for warning in warnings}
    return next((outcome for code, outcome in _UNENFORCED_OUTCOMES.items() if code in codes), "")


def _read_warning(line: str) -> reason.Reason:
    """Return a warning with its code; warnings of the API server itself get _KUBERNETES."""
    match = _CODED.fullmatch(line)
    return reason.Reason(match["code"], match["text"]) if match else reason.Reason(_KUBERNETES, line)


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
    """Return the pod as the API server completes it without railwright; unchanged if that pod is rejected."""
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    opted_out = {**pod, "metadata": {**metadata, "labels": {**labels, names.FABRIC: names.FABRIC_NONE}}}
    try:
        body, _ = await _create(client, opted_out)
    except errors.ApiError:
        return pod
    before = _decode_comparable(body, pod, client.host)
    own_labels = {key: value for key, value in before["metadata"]["labels"].items() if key != names.FABRIC}
    own_labels |= {names.FABRIC: labels[names.FABRIC]} if names.FABRIC in labels else {}
    own_metadata = before["metadata"] | {"labels": own_labels}
    return before | {"metadata": {key: value for key, value in own_metadata.items() if value}}


def _decode_comparable(body: bytes, pod: Tree, host: str) -> Tree:
    """Decode a created pod without its status and the API server's own fields; its name is that of `pod`.

    So two dry runs of one pod differ only in what admission changed. Raise ClusterError if it cannot be decoded.
    """
    try:
        created: Tree = msgspec.json.decode(_TOKEN_VOLUME.sub("kube-api-access", body.decode()), type=Tree)
        metadata = created["metadata"]
    except (*watch_wire.UNREADABLE, KeyError) as error:
        raise errors.build_foreign(host, "pods", str(error)) from None
    written = {key: pod["metadata"][key] for key in ("name", "generateName") if key in pod["metadata"]}
    own = {key: value for key, value in metadata.items() if key not in (*_SERVER_FIELDS, "name", "generateName")}
    return {key: value for key, value in created.items() if key != "status"} | {"metadata": {**written, **own}}


def _describe_error(error: errors.ApiError, namespace: str) -> str | Unanswered:
    """Return why the API server rejects the pod, or why that is unknown."""
    message = error.message
    if error.foreign:
        raise error
    if _NO_RIGHT in message:
        return Unanswered(f"you may not create pods in namespace {namespace}")
    if (not_called := _OWN_CALL_FAILED.search(message)) is not None:
        cause = errors.quote_message(message[not_called.end() :])
        return f"the API server could not call railwright's webhook{cause and f': {cause}'}"
    if (not_injected := _NOT_INJECTED.search(message)) is not None:
        return f"the API server did not call railwright's webhook: {message[not_injected.end() :]}"
    if error.status == 404:
        return Unanswered(f"namespace {namespace} does not exist: create it, or correct metadata.namespace or -n")
    if error.status in _REJECTIONS or _ANY_CALL_FAILED in message:
        denied = _DENIED.search(message)
        return message[denied.end() :] if denied else message
    raise error


def admit_by_dry_run(client: clients.Client) -> previews.Admit:
    """Return a function that creates workloads by dry runs."""

    async def admit(kind: frameworks.WorkloadKind, tree: Tree, namespace: str) -> bytes | None:
        path = f"/apis/{kind.group}/{kind.version}/namespaces/{namespace}/{kind.plural}?dryRun=All"
        try:
            body, _ = await client.create(path, tree)
        except errors.ApiError:
            return None  # forbidden, an unknown kind, or rejected; the dry runs of its pods say which
        return body

    return admit
