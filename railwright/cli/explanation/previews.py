"""Describes what admission does to the pods of a template: the patch, and a reason for each change.

The code of the webhook decides, on the bytes of an AdmissionReview. The reasons are those of the pod's record.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import object_files
from railwright.cli.explanation import recorded, templates
from railwright.fabric import views
from railwright.fabric.injection import opt_in
from railwright.fabric.policy import model as policies
from webhook import pods, reviews, state

Tree = object_files.Tree

POD = reviews.GroupVersionKind("", "v1", "Pod")
UNENFORCED = (reviews.WOULD_PATCH, reviews.WOULD_REFUSE)


class AdmissionPreview(recorded.Injection, frozen=True, kw_only=True):
    """Effect of admission on the pods of one template."""

    template: templates.Template
    outcome: str = reviews.ALLOWED  # as in metrics: patched, allowed, refused; in mode warn would-patch, would-refuse
    message: str = ""  # why the pod is rejected, or created without railwright
    operations: Sequence[Any] = ()
    before: Tree
    after: Tree
    source: str  # the dry run, or the file with the policy

    @property
    def is_rejected(self) -> bool:
        """True if the pod would not be created."""
        return self.outcome == reviews.REFUSED

    @property
    def is_uninjected(self) -> bool:
        """True if the pod opted in and would be created without railwright."""
        return self.outcome == reviews.ALLOWED and bool(self.message)


def fill_caches(objects: Mapping[str, Sequence[Any]]) -> state.State:
    """Return the webhook's caches with the objects of a snapshot; empty caches for no objects."""
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


def preview_admission(
    template: templates.Template, policy: policies.Policy, caches: state.State, source: str = "the policy in a file"
) -> AdmissionPreview:
    """Return the preview of a template's pod: the webhook's code decides by this policy and these caches."""
    body = build_review(template.pod, POD, template.namespace)
    cluster = template.add_accelerator_request(caches.build_facts(template.namespace), policy.document.accelerators)
    answer = pods.answer_review(body, policy, lambda _: cluster)
    response: Tree = msgspec.json.decode(answer.body)["response"]
    pod = template.pod
    preview = AdmissionPreview(
        template=template,
        fabric=answer.fabric,
        role=answer.role,
        outcome=answer.outcome,
        message=response.get("status", {}).get("message", ""),
        warnings=(*template.warnings, *answer.warnings),
        before=pod,
        after=pod,
        source=source,
    )
    if not answer.fabric and answer.outcome == reviews.ALLOWED:
        read = msgspec.convert(pod, views.Pod)
        unaccelerated = opt_in.explain_unaccelerated(read, cluster, policy.document.accelerators)
        return msgspec.structs.replace(preview, unaccelerated=unaccelerated)
    if not answer.fabric or answer.outcome not in {reviews.PATCHED, reviews.ALLOWED}:
        return preview
    if not policy.document.is_enforced:  # the pod would get only its record, of which the webhook does not warn
        return msgspec.structs.replace(preview, outcome=reviews.WOULD_PATCH)
    operations = msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
    return describe_patch(preview, pod, jsonpatch.apply_patch(pod, operations), operations)


def describe_patch(preview: AdmissionPreview, before: Tree, after: Tree, operations: Sequence[Any]) -> AdmissionPreview:
    """Return the preview, completed by the operations with which admission turns the pod `before` into `after`."""
    described = msgspec.structs.asdict(recorded.describe_injection(msgspec.convert(after, views.Pod)))
    own = {name: value for name, value in described.items() if value}  # the pod may have no room for a record
    own["changes"] = described["changes"] if operations else ()
    outcome = reviews.PATCHED if operations else reviews.ALLOWED
    return msgspec.structs.replace(preview, **own, outcome=outcome, before=before, after=after, operations=operations)
