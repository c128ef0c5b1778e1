"""Previews pods by dry runs in a cluster: creates with dryRun=All, by the caller's own permissions.

The API server runs its whole admission with railwright's webhook, and stores nothing. The webhook writes no Event.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import output, policy_sources
from railwright.cli.explanation import opt_ins, previews, templates
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import intent, names, views
from railwright.fabric.injection import keys
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from webhook import reviews

Tree = dict[str, Any]
NO_CLUSTER = "give the policy in a file: --policy FILE"
_DENIED = re.compile(r'admission webhook "(?:namespaced-)?pods\.railwright\.io" denied the request: ', re.ASCII)
_NOT_INJECTED = re.compile(rf"ValidatingAdmissionPolicy '.*? denied request: {AdmissionCode.NOT_INJECTED}: ", re.ASCII)
_CALL_FAILED = "failed calling webhook "
_NO_RIGHT = "forbidden: User "  # of RBAC; a rejection by admission names the pod instead
_UNCALLED = "the API server creates this pod without calling railwright's webhook"
_UNWARNED = (
    "the webhook returned no warning: enforcing the policy would add only a record, or the API server does not call "
    "the webhook; to see which: railwright check"
)
_UNENFORCED = (
    "the policy is in mode warn, and the admission policies deny pods that are not injected; until it is enforced, let "
    f"the pods of the namespace pass: kubectl label namespace NAMESPACE {names.DOMAIN}/uninjected=warn"
)
_TOKEN_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b", re.ASCII)  # the API server draws the suffix
_SERVER_FIELDS = ("uid", "creationTimestamp", "managedFields", "generation", "resourceVersion", "selfLink")
_REJECTIONS = frozenset({400, 403, 409, 422})  # by admission, validation or another object of the same name
_CODED = re.compile(r"(?P<code>[A-Z]\w+): (?P<text>.*)", re.ASCII)  # a warning of railwright
_KUBERNETES = "Kubernetes"  # code of a warning that is not railwright's
_UNENFORCED_OUTCOMES = {  # by the code of a warning
    AdmissionCode.WOULD_REJECT.value: reviews.WOULD_REFUSE,
    AdmissionCode.WOULD_INJECT.value: reviews.WOULD_PATCH,
}


async def preview_by_dry_run(client: clients.Client, template: templates.Template) -> previews.AdmissionPreview:
    """Return the preview of a template's pod by a dry run.

    Raises ClusterError, and UnreadableError without the right to create pods.
    """
    pod = template.pod
    preview = previews.AdmissionPreview(
        template=template, before=pod, after=pod, source=f"a dry run in namespace {template.namespace}"
    )
    try:
        body, lines = await _create_dry_run(client, pod)
    except errors.ApiError as error:
        return await _explain_rejection(client, preview, error)
    after, warnings = _decode_comparable(body, pod, client.host), [_read_warning(line) for line in lines]
    # the webhook is not called for a pod whose label is misspelt, so a dry run has no warning about it
    own_keys = keys.check_pod(msgspec.convert(pod["metadata"], views.ObjectMeta))
    preview = msgspec.structs.replace(
        preview,
        outcome=_find_warn_outcome(warnings) or reviews.ALLOWED,
        warnings=(*template.warnings, *own_keys, *(one for one in warnings if one.code not in keys.CODES)),
    )
    if preview.outcome != reviews.ALLOWED:
        return preview
    if record := (after["metadata"].get("annotations") or {}).get(names.INJECTION):
        try:
            source = f"{preview.source}, policy {intent.decode_record(record).policy}"
        except intent.InvalidRecordError as error:
            raise output.UnreadableError(
                f"annotation {names.INJECTION} of the dry-run pod is no record that this version can read: {error}; "
                "remove it from the manifest, or compare versions: railwright check -v"
            ) from None
        before = await _complete_without_railwright(client, pod)
        preview = msgspec.structs.replace(preview, source=source)
        return previews.describe_patch(preview, before, after, jsonpatch.make_patch(before, after).patch)
    if any(names.INJECTION in warning.text for warning in warnings):
        return preview
    opted_in = await opt_ins.find_opt_in(client, msgspec.convert(after, views.Pod))
    if opted_in.label is None:
        return msgspec.structs.replace(preview, opt_in_unknown=opted_in.unknown, unaccelerated=opted_in.unaccelerated)
    message = await policy_sources.describe_disabled(client)
    if not message and await policy_sources.is_policy_in_mode_warn(client):
        return msgspec.structs.replace(preview, outcome=reviews.WOULD_PATCH, message=_UNWARNED)
    return msgspec.structs.replace(preview, message=message or _UNCALLED)


async def _explain_rejection(
    client: clients.Client, preview: previews.AdmissionPreview, error: errors.ApiError
) -> previews.AdmissionPreview:
    template, warnings = preview.template, [_read_warning(line) for line in error.warnings]
    outcome, message = reviews.REFUSED, _describe_error(error, template.namespace)
    has_warned = bool(_find_warn_outcome(warnings))
    if _NOT_INJECTED.search(error.message) and (has_warned or await policy_sources.is_policy_in_mode_warn(client)):
        message = _UNENFORCED
        if template.inherits_label:
            # in mode warn the label of a workload is not copied, so the pods that its controller creates lack it
            created = await preview_by_dry_run(client, _leave_out_label(template))
            message = created.message
            if not created.is_rejected:
                outcome, message = reviews.WOULD_PATCH, "" if has_warned else _UNWARNED
    return msgspec.structs.replace(preview, outcome=outcome, message=message, warnings=(*template.warnings, *warnings))


def _leave_out_label(template: templates.Template) -> templates.Template:
    metadata = template.pod["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != names.FABRIC}
    pod = {**template.pod, "metadata": {**metadata, "labels": labels}}
    return msgspec.structs.replace(template, pod=pod, inherits_label=False)


def _find_warn_outcome(warnings: Sequence[reason.Reason]) -> str:
    """Return `would-patch` or `would-refuse` if a warning is from mode warn; otherwise ""."""
    outcomes = (_UNENFORCED_OUTCOMES.get(warning.code, "") for warning in warnings)
    return next(filter(None, outcomes), "")


def _read_warning(line: str) -> reason.Reason:
    """Return a warning with its code; warnings of the API server itself get _KUBERNETES."""
    match = _CODED.fullmatch(line)
    return reason.Reason(match["code"], match["text"]) if match else reason.Reason(_KUBERNETES, line)


async def _create_dry_run(client: clients.Client, pod: Tree) -> tuple[bytes, tuple[str, ...]]:
    """Return the pod of a dry run, and its warnings. Use a generated name if a pod of its name exists already."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
    try:
        return await client.post_with_warnings(path, pod)
    except errors.ApiError as error:
        if error.status != 409 or "name" not in pod["metadata"]:
            raise
    metadata = dict(pod["metadata"])
    metadata["generateName"] = metadata.pop("name")  # the API server cuts a long one
    return await client.post_with_warnings(path, {**pod, "metadata": metadata})


async def _complete_without_railwright(client: clients.Client, pod: Tree) -> Tree:
    """Return the pod as the API server completes it without railwright; unchanged if that pod is rejected."""
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    opted_out = {**pod, "metadata": {**metadata, "labels": {**labels, names.FABRIC: names.FABRIC_NONE}}}
    try:
        body, _ = await _create_dry_run(client, opted_out)
    except errors.ApiError:
        return pod
    before = _decode_comparable(body, pod, client.host)
    own_labels = before["metadata"]["labels"] | labels  # also the author's fabric again
    if names.FABRIC not in labels:
        own_labels.pop(names.FABRIC, None)
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
        raise errors.build_foreign_error(host, "pods", str(error)) from None
    written = {key: pod["metadata"][key] for key in ("name", "generateName") if key in pod["metadata"]}
    own = {key: value for key, value in metadata.items() if key not in (*_SERVER_FIELDS, "name", "generateName")}
    return {key: value for key, value in created.items() if key != "status"} | {"metadata": {**written, **own}}


def _describe_error(error: errors.ApiError, namespace: str) -> str:
    """Return why admission rejects the pod. Raise UnreadableError or `error` if another cause made the request fail."""
    message = error.message
    if error.foreign:
        raise error
    if _NO_RIGHT in message:
        raise output.UnreadableError(
            f"you may not create pods in namespace {namespace}, not even by a dry run; {NO_CLUSTER}"
        )
    if error.status == 404:
        raise output.UnreadableError(
            f"namespace {namespace} does not exist: create it, or correct metadata.namespace or -n. Or {NO_CLUSTER}"
        )
    if error.status in _REJECTIONS or _CALL_FAILED in message:
        denied = _DENIED.search(message)
        return message[denied.end() :] if denied else message
    raise error
