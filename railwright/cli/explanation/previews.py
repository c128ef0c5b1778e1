"""Passes pods and workloads to the webhook's own functions, and describes the responses.

Of a pod: the patch, and a reason for each change. Of a workload: what it would ask of its scheduler. Decides nothing:
`webhook.pods` and `webhook.workloads` respond to bytes as on a socket, and the reasons are those of the plan behind it.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jsonpatch
import msgspec

from railwright.cli import object_files, output
from railwright.cli.explanation import templates
from railwright.fabric import admission, bounded_cache, intent, names, views
from railwright.fabric.injection import facts, plan
from railwright.fabric.injection import templates as stored
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import frameworks, registry
from railwright.serving import turns
from webhook import pods, response_cache, reviews, state, workloads

Tree = object_files.Tree


class Change(msgspec.Struct, frozen=True):
    """A change of a pod: its name in the record, a description, the path in the pod, and the reason."""

    entry: str
    change: str
    path: str
    reason: str


DRY_RUN, CONFIG_MAP, FILE = "dry-run", "configmap", "file"  # kinds of sources


class Source(msgspec.Struct, frozen=True):
    """Name what a preview comes from: the cluster's webhook, or a policy that this command applied itself."""

    kind: str
    text: str  # which, and why not a better source


POD = reviews.GroupVersionKind("", "v1", "Pod")
POLICY_FILE = Source(FILE, "the policy in a file")
_MAX_DECISIONS = 256  # a few KiB each, as the webhook's responses


class Topology(msgspec.Struct, frozen=True):
    """The scheduler that decides for a gang, and why it reads a topology or none."""

    scheduler: str
    reason: reason.Reason


class AdmissionPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of admission on the pods of one template."""

    object: str
    template: str
    pods: int | None
    outcome: str  # as in metrics: patched, allowed, refused; in mode warn would-patch, would-refuse
    fabric: str = ""
    role: str = ""
    rails: Sequence[str] = ()
    operations: Sequence[Any] = ()
    changes: Sequence[Change] = ()
    warnings: Sequence[reason.Reason]
    unchanged: Mapping[str, Any] = msgspec.field(default_factory=dict, name="kept")  # the user's own, by container
    skipped: Mapping[str, reason.Reason] = {}
    topology: Topology | None = None  # of its workload
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
    return caches


def build_review(created: Tree, kind: reviews.GroupVersionKind, namespace: str) -> bytes:
    """Return the review that the API server would send for such an object, as a dry run, which leaves no trace."""
    request = {"uid": "explain", "kind": kind, "namespace": namespace, "operation": "CREATE", "dryRun": True}
    review = {"apiVersion": reviews.API_VERSION, "kind": reviews.KIND, "request": {**request, "object": created}}
    return msgspec.json.encode(review)


def _read_answer(body: bytes) -> tuple[Tree, bytes]:
    """Return the response in the body of a webhook's answer, and its JSON Patch."""
    response: Tree = msgspec.json.decode(body)["response"]
    return response, base64.b64decode(response["patch"]) if "patch" in response else b"[]"


class Decision(msgspec.Struct, frozen=True):
    """Holds what admission decides on a pod, and on each pod with an equal excerpt and an equal answer."""

    answer: reviews.Answer
    message: str
    patch: bytes  # decoded for each pod, because some versions of jsonpatch put its lists into the pod
    planned: plan.Outcome
    changes: Sequence[Change]

    @property
    def injection(self) -> plan.Injection | None:
        """Return the injection that the policy asks for, whatever its mode; None if there is none."""
        return self.planned if isinstance(self.planned, plan.Injection) else None


class Decisions:
    """Remembers the decisions under one policy and one state of the caches: pods with equal excerpts are planned once.

    A facts object that says something else of the job has responses of its own, because their keys do not tell it.
    """

    def __init__(self) -> None:
        self._responses: dict[bool | None, response_cache.ResponseCache] = {}
        self._known: bounded_cache.BoundedCache[object, Decision] = bounded_cache.BoundedCache(_MAX_DECISIONS)

    def decide(self, pod: views.Pod, body: bytes, policy: policies.Policy, cluster: facts.ClusterFacts) -> Decision:
        """Return the decision on the pod of a review. Raises reviews.MalformedError."""
        responses = self._responses.setdefault(cluster.job_accelerated, response_cache.ResponseCache())
        answer = pods.handle(body, policy, lambda _: cluster, responses)
        entry = responses.build_entry(pod, len(body), policy, cluster)
        if entry is None or responses.by_key.get(entry[0]) is None:
            return _decide(pod, policy, cluster, answer)
        # a pod with too many values is rejected, whatever its excerpt
        key = (cluster.job_accelerated, entry[0], answer.body)
        return self._known.find(key, lambda: _decide(pod, policy, cluster, answer))


def _decide(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, answer: reviews.Answer) -> Decision:
    response, encoded_patch = _read_answer(answer.body)
    planned = admission.plan(pod, policy, cluster)
    message = response.get("status", {}).get("message", "")
    return Decision(answer, message, encoded_patch, planned, _list_changes(planned))


def preview_admission(
    template: templates.Template,
    policy: policies.Policy,
    caches: state.State,
    source: Source = POLICY_FILE,
    decisions: Decisions | None = None,
) -> AdmissionPreview:
    """Return the preview of a template. Raises UnreadableError if the template is not a valid pod.

    `decisions` are those on other templates, under the same policy and with the same caches.
    """
    body = build_review(template.pod, POD, template.namespace)
    cluster = template.add_facts(caches.build_facts(template.namespace), policy.document.accelerators)
    try:
        pod = msgspec.convert(template.pod, views.Pod)
        decision = (decisions or Decisions()).decide(pod, body, policy, cluster)
    except (reviews.MalformedError, msgspec.ValidationError) as error:
        reason = object_files.describe_mismatch(error) if isinstance(error, msgspec.ValidationError) else error
        raise output.UnreadableError(f"{template.owner}: its pod template is not valid: {reason}") from None
    answer, injection = decision.answer, decision.injection
    copied = msgspec.json.decode(msgspec.json.encode(template.pod))
    operations = msgspec.json.decode(decision.patch)
    after = jsonpatch.apply_patch(copied, operations, in_place=True)
    record = read_record(after) if injection is not None else intent.Record()
    return msgspec.structs.replace(
        build_unchanged(template, answer.outcome, decision.message, source),
        fabric=answer.fabric,
        role=answer.role,
        rails=injection.rails if injection is not None else (),
        operations=operations,
        changes=decision.changes,
        warnings=(*template.warnings, *answer.warnings),
        unchanged=record.user_values,
        skipped=record.skipped,
        after=after,
    )


def build_unchanged(template: templates.Template, outcome: str, message: str, source: Source) -> AdmissionPreview:
    """Return the preview of a template whose pods stay as they are: rejected, or created without railwright."""
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


def _list_changes(planned: plan.Outcome) -> list[Change]:
    if not isinstance(planned, plan.Injection):
        return []
    return [
        Change(
            entry=change.entry or "record",
            change=change.title,
            path=change.operations[-1]["path"] if change.operations else "",  # parents come first
            reason=change.reason,
        )
        for change in planned.changes
    ]


# --- the topology that a workload asks for ----------------------------------------------------------------


def preview_topologies(
    pod_templates: Sequence[templates.Template], policy: policies.Policy, caches: state.State
) -> Mapping[str, Topology]:
    """Return the topology of each workload by its title."""
    by_title: dict[str, Topology] = {}
    for title, workload in list_workloads(pod_templates).items():
        kind, tree = workload.kind, workload.tree
        try:
            review = build_review(
                tree, reviews.GroupVersionKind(kind.group, kind.version, kind.name), workload.namespace
            )
            answer = turns.complete(workloads.handle(review, policy, caches.build_facts))
        except reviews.MalformedError:
            continue
        _, encoded_patch = _read_answer(answer.body)
        patched = jsonpatch.apply_patch(tree, msgspec.json.decode(encoded_patch))
        topology = read_topology(kind, msgspec.json.encode(patched))
        if topology is not None:
            by_title[title] = topology
    return by_title


class MutatedWorkload(NamedTuple):
    """An object of a file that admission mutates, in the namespace of its pods."""

    kind: frameworks.WorkloadKind
    tree: Tree
    namespace: str


def list_workloads(pod_templates: Sequence[templates.Template]) -> Mapping[str, MutatedWorkload]:
    """Return the workloads that admission mutates, by their titles."""
    by_title = {}
    for template in pod_templates:
        if template.workload is not None:
            group, _, version = str(template.workload.get("apiVersion", "")).rpartition("/")
            kind = registry.find_injected(group, version, str(template.workload.get("kind")))
            if kind is not None:
                by_title[template.owner] = MutatedWorkload(kind, template.workload, template.namespace)
    return by_title


def read_topology(kind: frameworks.WorkloadKind, body: bytes) -> Topology | None:
    """Return the topology in the record of the first template that has one."""
    try:
        records = [intent.read_topology(template.pod) for template in stored.read(kind, body).templates]
    except stored.UnreadableError:
        return None
    written = [Topology(record.scheduler, record.reason) for record in records if record.reason]
    return written[0] if written else None
