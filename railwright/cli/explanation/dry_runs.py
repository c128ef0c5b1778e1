"""Previews pods by dry runs in a cluster: creates with dryRun=All, by the caller's own permissions.

The API server runs its whole admission, calls our webhook and stores nothing. The webhook writes no Event on a dry run.
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
from webhook import reviews, state

Tree = dict[str, Any]
NO_CLUSTER = "give the policy in a file: --policy FILE"
_OURS = r'"(?:namespaced-)?pods\.railwright\.io"'  # webhooks of manifests/base/admission.yaml that review pods
_DENIED = re.compile(rf"admission webhook {_OURS} denied the request: ", re.ASCII)
_OWN_CALL_FAILED = re.compile(rf"failed calling webhook {_OURS}: ", re.ASCII)
_NOT_INJECTED = re.compile(rf"ValidatingAdmissionPolicy '.*? denied request: {AdmissionCode.NOT_INJECTED}: ", re.ASCII)
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


async def ask(client: clients.Client, template: templates.Template) -> previews.AdmissionPreview:
    """Dry-run the pod of a template. Raise UnreadableError without the right to, and ClusterError without an answer."""
    answer = await _dry_run_pod(client, template, template.pod)
    is_unenforced = answer.outcome in previews.UNENFORCED or answer.message == _UNENFORCED
    if not (template.inherits_label and is_unenforced):
        return answer
    # In mode warn the label is not copied into the template, so the controller creates the pods without it.
    metadata = template.pod["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != names.FABRIC}
    created = await _dry_run_pod(client, template, {**template.pod, "metadata": {**metadata, "labels": labels}})
    if created.is_rejected:
        return created
    warnings = [warning for warning in answer.warnings if warning.code != _KUBERNETES]
    warnings += [warning for warning in created.warnings if warning.code == _KUBERNETES]
    outcome = _find_unenforced(answer.warnings) or reviews.WOULD_PATCH
    return msgspec.structs.replace(created, outcome=outcome, warnings=warnings)


async def _dry_run_pod(client: clients.Client, template: templates.Template, pod: Tree) -> previews.AdmissionPreview:
    """Dry-run a pod of a template.

    The webhook does not get every pod, so a dry run has no warning about a misspelt label: it is added here.
    """
    source = f"a dry run in namespace {template.namespace}"
    try:
        body, lines = await _create(client, pod)
    except errors.ApiError as error:
        warnings = [_read_warning(line) for line in error.warnings]
        message = _describe_error(error, template.namespace)
        if _NOT_INJECTED.search(error.message):
            is_unenforced = _find_unenforced(warnings) or await policy_sources.is_unenforced(client)
            message = _UNENFORCED if is_unenforced else message
        return previews.build_preview(template, reviews.REFUSED, source, message=message, warnings=warnings)
    warnings = [_read_warning(line) for line in lines]
    outcome = _find_unenforced(warnings)
    before = after = _decode_comparable(body, pod, client.host)
    opt_in_unknown = ""
    if record := (after["metadata"].get("annotations") or {}).get(names.INJECTION):
        try:
            source = f"{source}, policy {intent.decode_record(record).policy}"
        except intent.InvalidRecordError as error:
            raise output.UnreadableError(
                f"annotation {names.INJECTION} of the dry-run pod is no record that this version can read: {error}; "
                "remove it from the manifest, or compare versions: railwright check -v"
            ) from None
        before = await _complete_without_railwright(client, pod)
    elif not outcome and all(names.INJECTION not in warning.text for warning in warnings):
        opted_in = await opt_ins.find(client, msgspec.convert(after, views.Pod))
        opt_in_unknown = opted_in.unknown
        if opted_in.label is not None:
            disabled = await policy_sources.describe_disabled(client)
            if disabled or not _is_silent(opted_in, template, pod):
                return previews.build_preview(template, reviews.ALLOWED, source, message=disabled or _UNCALLED)
            outcome = reviews.WOULD_PATCH
    operations = jsonpatch.make_patch(before, after).patch
    return previews.build_preview(
        template,
        outcome or (reviews.PATCHED if operations else reviews.ALLOWED),
        source,
        warnings=(
            *keys.check_pod(msgspec.convert(pod["metadata"], views.ObjectMeta)),
            *(warning for warning in warnings if warning.code not in keys.CODES),
        ),
        before=before,
        after=after,
        operations=operations,
        opt_in_unknown=opt_in_unknown,
    )


def _is_silent(opted_in: opt_ins.OptIn, template: templates.Template, pod: Tree) -> bool:
    """True if the policy is in mode warn, and the pod would get only its record, so that the webhook does not warn."""
    policy = opted_in.policy
    if policy is None or policy.document.is_enforced:
        return False
    caches, labels = state.State(), opted_in.namespace_labels
    if labels is not None:
        caches.namespaces.replace(
            [views.Namespace(views.BriefMeta(name=template.namespace, labels_or_none=dict(labels)))]
        )
    preview = previews.preview_admission(msgspec.structs.replace(template, pod=pod), policy, caches)
    return not _find_unenforced(preview.warnings)


def _find_unenforced(warnings: Sequence[reason.Reason]) -> str:
    """Return the outcome of mode warn from its warnings; "" if no warning is from mode warn."""
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


async def _complete_without_railwright(client: clients.Client, pod: Tree) -> Tree:
    """Return the pod as the API server completes it without railwright; unchanged if that pod is rejected."""
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    opted_out = {**pod, "metadata": {**metadata, "labels": {**labels, names.FABRIC: names.FABRIC_NONE}}}
    try:
        body, _ = await _create(client, opted_out)
    except errors.ApiError:
        return pod
    before = _decode_comparable(body, pod, client.host)
    own_labels = {
        key: labels.get(key, value)  # also the author's fabric again
        for key, value in before["metadata"]["labels"].items()
        if key in labels or key != names.FABRIC
    }
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


def _describe_error(error: errors.ApiError, namespace: str) -> str:
    """Return why the API server rejects the pod. Raise UnreadableError if that is unknown, otherwise the error."""
    message = error.message
    if error.foreign:
        raise error
    if _NO_RIGHT in message:
        raise output.UnreadableError(
            f"you may not create pods in namespace {namespace}, not even by a dry run; {NO_CLUSTER}"
        )
    if (not_called := _OWN_CALL_FAILED.search(message)) is not None:
        cause = errors.quote_message(message[not_called.end() :])
        return f"the API server could not call railwright's webhook{cause and f': {cause}'}"
    if (not_injected := _NOT_INJECTED.search(message)) is not None:
        return f"the API server did not call railwright's webhook: {message[not_injected.end() :]}"
    if error.status == 404:
        raise output.UnreadableError(
            f"namespace {namespace} does not exist: create it, or correct metadata.namespace or -n. Or {NO_CLUSTER}"
        )
    if error.status in _REJECTIONS or _ANY_CALL_FAILED in message:
        denied = _DENIED.search(message)
        return message[denied.end() :] if denied else message
    raise error
