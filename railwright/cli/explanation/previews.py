"""Passes a pod to the webhook's own function, and describes the response: the patch, and a reason for each change.

Decides nothing: `webhook.pods` responds to bytes as on a socket, and the reasons are those of the plan behind it.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import object_files, output
from railwright.cli.explanation import templates, topologies
from railwright.fabric import admission, intent, names, views
from railwright.fabric.injection import plan, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering
from webhook import patch, pods, reviews, state

Tree = object_files.Tree


class Change(msgspec.Struct, frozen=True):
    """A change of a pod: its name in the record, a description, the path in the pod, and the reason."""

    entry: str
    change: str
    path: str
    reason: str


DRY_RUN, FILE = "dry-run", "file"  # kinds of sources; between them, by rank: fabricpolicy and configmap


class Source(msgspec.Struct, frozen=True):
    """Name what a preview comes from: the cluster's webhook, or a policy that this command applied itself."""

    kind: str
    text: str  # which, and why not a better source


POLICY_FILE = Source(FILE, "the policy in a file")


class AdmissionPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of admission on the pods of one template."""

    object: str
    template: str
    pods: int | None
    outcome: str  # as in metrics: patched, allowed, refused; in audit mode would-patch, would-refuse
    fabric: str = ""
    role: str = ""
    rails: Sequence[str] = ()
    operations: Sequence[Any] = ()
    changes: Sequence[Change] = ()
    warnings: Sequence[rendering.Message]
    unchanged: Mapping[str, Any] = msgspec.field(default_factory=dict, name="kept")  # the user's own, by container
    skipped: Mapping[str, rendering.Message] = {}
    topology: topologies.Topology | None = None  # of its workload
    message: str
    before: Tree
    after: Tree
    source: Source


def load_caches(snapshot: str | None) -> state.State:
    """Return the caches a server would have; empty without a snapshot file. Raises UnreadableError for a bad one."""
    caches = state.State()
    if snapshot is None:
        return caches
    objects = object_files.read_snapshot(snapshot)
    caches.namespaces.replace(objects["Namespace"])
    caches.networks.replace(objects["NetworkAttachmentDefinition"])
    caches.nodes.replace(objects["Node"])
    caches.hyper_nodes.replace(objects["HyperNode"])
    return caches


def build_review(template: templates.Template) -> bytes:
    """Return the review that the API server would send for such a pod, as a dry run, which leaves no trace."""
    return msgspec.json.encode(
        {
            "apiVersion": reviews.API_VERSION,
            "kind": reviews.KIND,
            "request": {
                "uid": "explain",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": template.namespace,
                "operation": "CREATE",
                "object": template.pod,
                "dryRun": True,
            },
        }
    )


def preview_admission(
    template: templates.Template, policy: policies.Policy, caches: state.State, source: Source = POLICY_FILE
) -> AdmissionPreview:
    """Return the preview of a template. Raises UnreadableError if the template is not a valid pod."""
    body = build_review(template)
    facts = template.add_facts(caches.build_facts(template.namespace), policy.document.accelerators)
    try:
        pod = msgspec.convert(template.pod, views.Pod)
        response = pods.handle(body, policy, lambda _: facts)
    except (reviews.MalformedError, msgspec.ValidationError) as error:
        reason = object_files.describe_mismatch(error) if isinstance(error, msgspec.ValidationError) else error
        raise output.UnreadableError(f"{template.owner}: its pod template is not valid: {reason}") from None
    answer_body = msgspec.json.decode(response.body)["response"]
    operations = msgspec.json.decode(base64.b64decode(answer_body["patch"])) if "patch" in answer_body else []
    copied = msgspec.json.decode(msgspec.json.encode(template.pod))
    after = jsonpatch.apply_patch(copied, operations, in_place=True)
    planned = admission.plan(pod, policy, facts)
    injection = planned.enforced if isinstance(planned, pod_changes.Audit) else planned
    refusal = planned.refusal if isinstance(planned, pod_changes.Audit) else None
    record = _read_record(after) if isinstance(injection, pod_changes.Injection) else intent.Record()
    return AdmissionPreview(
        object=template.owner,
        template=template.part,
        pods=template.pods,
        outcome=response.outcome,
        fabric=response.fabric,
        role=response.role,
        rails=injection.rails if isinstance(injection, pod_changes.Injection) else (),
        operations=operations,
        changes=_list_changes(pod, injection),
        warnings=template.warnings + (() if isinstance(planned, pod_changes.Refusal) else planned.warnings),
        unchanged=record.user_values,
        skipped={entry: rendering.describe_recorded(recorded) for entry, recorded in record.skipped.items()},
        message=refusal.message if refusal is not None else answer_body.get("status", {}).get("message", ""),
        before=template.pod,
        after=after,
        source=source,
    )


def build_unchanged(template: templates.Template, outcome: str, message: str, source: Source) -> AdmissionPreview:
    """Return the preview of a template whose pods a cluster rejects, or creates without railwright."""
    return AdmissionPreview(
        object=template.owner,
        template=template.part,
        pods=template.pods,
        outcome=outcome,
        warnings=template.warnings,
        message=message,
        before=template.pod,
        after=template.pod,
        source=source,
    )


def is_rejected(preview: AdmissionPreview) -> bool:
    """True if the pod would not be created."""
    return preview.outcome == reviews.REFUSED


def is_uninjected(preview: AdmissionPreview) -> bool:
    """True if the pod opted in and would be created without railwright."""
    return preview.outcome == reviews.ALLOWED and bool(preview.message)


def is_finding(preview: AdmissionPreview) -> bool:
    """True if the author of the pod does not get what the label asks for."""
    return is_rejected(preview) or is_uninjected(preview)


def _read_record(pod: Tree) -> intent.Record:
    """Return the injection record of a pod; empty if it was left out because of its size."""
    text = object_files.get_mapping(pod, "metadata", "annotations").get(names.INJECTION)
    return intent.decode_record(text) if text else intent.Record()


def _list_changes(pod: views.Pod, planned: plan.Outcome | None) -> list[Change]:
    if not isinstance(planned, pod_changes.Injection):
        return []
    return [
        Change(
            entry=change.entry or "record",
            change=change.describe(pod),
            path=operations[-1]["path"] if operations else "",  # parents come first
            reason=change.reason,
        )
        for change, operations in patch.group_by_change(pod, planned.changes)
    ]
