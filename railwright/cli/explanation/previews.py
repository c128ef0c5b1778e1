"""Calls the webhook's functions with pods and workloads, and describes the responses.

For a pod: the patch, and a reason for each change. For a workload: its topology request. Decides nothing:
`webhook.pods` and `webhook.workloads` respond to bytes as on a socket, and the reasons are those of the pod's record.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import object_files, output
from railwright.cli.explanation import recorded, templates
from railwright.fabric import intent, names, views
from railwright.fabric.injection import templates as stored
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import frameworks
from webhook import pods, response_cache, reviews, state, workloads

Tree = object_files.Tree


DRY_RUN, CONFIG_MAP, FILE = "dry-run", "configmap", "file"  # kinds of sources


class Source(msgspec.Struct, frozen=True):
    """The origin of a preview: the cluster's webhook, or a policy that this command applied itself."""

    kind: str
    text: str  # which, and why not a better source


POD = reviews.GroupVersionKind("", "v1", "Pod")
POLICY_FILE = Source(FILE, "the policy in a file")


class AdmissionPreview(recorded.Injection, frozen=True, kw_only=True):
    """Effect of admission on the pods of one template."""

    template: templates.Template
    outcome: str  # as in metrics: patched, allowed, refused; in mode warn would-patch, would-refuse
    message: str  # why the pod is rejected, or created without railwright
    operations: Sequence[Any] = ()
    before: Tree
    after: Tree
    source: Source


def fill_caches(objects: Mapping[str, Sequence[Any]]) -> state.State:
    """Return the caches a server would have of the objects of a snapshot; empty without any."""
    caches = state.State()
    if not objects:
        return caches
    caches.namespaces.replace(objects["Namespace"])
    caches.networks.replace(objects["NetworkAttachmentDefinition"])
    caches.nodes.replace(objects["Node"])
    return caches


def build_review(created: Tree, kind: reviews.GroupVersionKind, namespace: str) -> bytes:
    """Return the AdmissionReview that the API server would send for an object, as a dry run without side effects."""
    request = {"uid": "explain", "kind": kind, "namespace": namespace, "operation": "CREATE", "dryRun": True}
    review = {"apiVersion": reviews.API_VERSION, "kind": reviews.KIND, "request": {**request, "object": created}}
    return msgspec.json.encode(review)


def _read_answer(body: bytes) -> tuple[Tree, list[Any]]:
    """Return the response in the body of a webhook's answer, and the operations of its JSON Patch."""
    response: Tree = msgspec.json.decode(body)["response"]
    return response, msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []


def preview_admission(
    template: templates.Template, policy: policies.Policy, caches: state.State, source: Source = POLICY_FILE
) -> AdmissionPreview:
    """Return the preview of a template. Raises UnreadableError if the template is not a valid pod."""
    require_valid(template)
    body = build_review(template.pod, POD, template.namespace)
    cluster = template.add_facts(caches.build_facts(template.namespace), policy.document.accelerators)
    try:
        answer = pods.handle(body, policy, lambda _: cluster, response_cache.ResponseCache())
    except reviews.MalformedError as error:
        raise _build_invalid(template, error) from None
    response, operations = _read_answer(answer.body)
    after = None
    if answer.fabric and answer.outcome in (reviews.PATCHED, reviews.ALLOWED):
        after = jsonpatch.apply_patch(template.pod, operations)
    preview = build_preview(
        template,
        answer.outcome,
        source,
        message=response.get("status", {}).get("message", ""),
        warnings=answer.warnings,
        after=after,
        operations=operations,
    )
    return msgspec.structs.replace(preview, fabric=answer.fabric, role=answer.role)


def require_valid(template: templates.Template) -> None:
    """Raise UnreadableError with the path of a wrong value if the template is not a valid pod."""
    try:
        msgspec.convert(template.pod, views.Pod)
    except msgspec.ValidationError as error:
        raise _build_invalid(template, error) from None


def _build_invalid(template: templates.Template, error: Exception) -> output.UnreadableError:
    mismatch = object_files.describe_mismatch(error)
    return output.UnreadableError(f"{template.owner}: its pod template is not valid: {mismatch}")


def build_preview(  # noqa: PLR0913 - one argument for each field
    template: templates.Template,
    outcome: str,
    source: Source,
    *,
    message: str = "",
    warnings: Sequence[reason.Reason] = (),
    before: Tree | None = None,
    after: Tree | None = None,
    operations: Sequence[Any] = (),
) -> AdmissionPreview:
    """Return the preview of a template whose pods admission turns from `before` into `after`, by these operations.

    Without `after` admission does not change them: they are rejected, or created without railwright.
    """
    before = template.pod if before is None else before
    injection = recorded.Injection()
    if after is not None:
        injection = recorded.describe(msgspec.convert(after, views.Pod), read_record(after))
    own = {"warnings": (*template.warnings, *warnings), "changes": injection.changes if operations else ()}
    return AdmissionPreview(
        **(msgspec.structs.asdict(injection) | own),
        template=template,
        outcome=outcome,
        message=message,
        operations=operations,
        before=before,
        after=before if after is None else after,
        source=source,
    )


def is_rejected(preview: AdmissionPreview) -> bool:
    """True if the pod would not be created."""
    return preview.outcome == reviews.REFUSED


def is_uninjected(preview: AdmissionPreview) -> bool:
    """True if the pod opted in and would be created without railwright."""
    return preview.outcome == reviews.ALLOWED and bool(preview.message)


def is_finding(preview: AdmissionPreview) -> bool:
    """True if the pod opted in and is rejected or not injected."""
    return is_rejected(preview) or is_uninjected(preview)


def never_fits(preview: AdmissionPreview) -> bool:
    """True if it warns that its gang never fits the nodes."""
    return any(warning.code == PlacementCode.CAPACITY_NEVER for warning in preview.warnings)


def read_record(pod: Tree) -> intent.Record:
    """Return the injection record of a pod, an empty one if it has none. Raise UnreadableError for an invalid one."""
    text = frameworks.get_mapping(pod, "metadata", "annotations").get(names.INJECTION)
    try:
        return intent.decode_record(text) if text else intent.Record()
    except intent.InvalidRecordError as error:
        raise output.UnreadableError(
            f"annotation {names.INJECTION} of the dry-run pod is not a record of this version: {error}; "
            "compare versions: railwright version"
        ) from None


# --- the topology that a workload asks for ----------------------------------------------------------------

Admit = Callable[[frameworks.WorkloadKind, Tree, str], Awaitable[bytes | None]]
"""(kind, workload, namespace) -> the workload in JSON as admission changes it; None if that is unknown."""


def admit_here(policy: policies.Policy, caches: state.State) -> Admit:
    """Return a function that applies the webhook's code to workloads."""

    async def admit(kind: frameworks.WorkloadKind, tree: Tree, namespace: str) -> bytes | None:
        review = build_review(tree, reviews.GroupVersionKind(kind.group, kind.version, kind.name), namespace)
        try:
            answer = await workloads.handle(review, policy, caches.build_facts)
        except reviews.MalformedError:
            return None
        return msgspec.json.encode(jsonpatch.apply_patch(tree, _read_answer(answer.body)[1]))

    return admit


async def add_topologies(shown: Sequence[AdmissionPreview], admit: Admit) -> Sequence[AdmissionPreview]:
    """Return the previews with the topology that admission writes into the workload of each."""
    by_owner: dict[str, intent.TopologyRecord | None] = {}
    for template in (preview.template for preview in shown):
        kind = template.mutated_kind
        if template.workload is not None and kind is not None and template.owner not in by_owner:
            body = await admit(kind, template.workload, template.namespace)
            by_owner[template.owner] = _read_topology(kind, body) if body else None
    return [msgspec.structs.replace(preview, topology=by_owner.get(preview.template.owner)) for preview in shown]


def _read_topology(kind: frameworks.WorkloadKind, body: bytes) -> intent.TopologyRecord | None:
    try:
        return recorded.find_topology(template.pod for template in stored.read(kind, body).templates)
    except stored.UnreadableError:
        return None
