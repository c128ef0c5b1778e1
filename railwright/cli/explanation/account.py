"""One pod through the webhook's own function, and an account of what came back: the patch, and why each change.

Owns the review that is asked and the reading of the answer. Decides nothing: the answer is `webhook.pods`', bytes in
and bytes out as on a socket, and the reasons are those of the plan behind it.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import output, snapshot_files
from railwright.cli.explanation import manifests, templates
from railwright.fabric import admission, names, views
from railwright.fabric.injection import model, plan
from railwright.fabric.policy import model as policies
from webhook import answer, patch, pods, state, wire

Tree = manifests.Tree


class Why(msgspec.Struct, frozen=True):
    """A change: its name in the record, what it does, where in the pod, and its reason."""

    entry: str
    change: str
    path: str
    reason: str


class Account(msgspec.Struct, frozen=True):
    """What admission does to the pods of one template."""

    object: str
    template: str
    pods: int | None
    outcome: str  # in the words of metrics and audit: patched, allowed, refused
    fabric: str
    role: str
    rails: Sequence[str]
    operations: Sequence[Any]
    changes: Sequence[Why]
    warnings: Sequence[str]
    kept: Mapping[str, Any]
    skipped: Mapping[str, str]
    message: str
    before: Tree
    after: Tree


def known(snapshot: str | None) -> state.State:
    """Return the caches a server would have; empty without a snapshot file. Raises UnreadableError for a bad one."""
    caches = state.State()
    if snapshot is None:
        return caches
    found = snapshot_files.read(snapshot)
    caches.namespaces.replace(found["Namespace"])
    caches.networks.replace(found["NetworkAttachmentDefinition"])
    caches.nodes.replace(found["Node"])
    return caches


def review(template: templates.Template) -> bytes:
    """The review the API server would send when such a pod is created; a dry run, as it leaves no trace."""
    return msgspec.json.encode(
        {
            "apiVersion": wire.API_VERSION,
            "kind": wire.KIND,
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


def give(template: templates.Template, policy: policies.Policy, caches: state.State) -> Account:
    """The account of a template. Raises UnreadableError where the template is no pod."""
    body = review(template)
    facts = caches.facts(template.namespace)
    if template.requested is not None:
        accelerated = not template.requested.isdisjoint(policy.document.accelerators)
        facts = msgspec.structs.replace(facts, job_accelerated=accelerated)
    try:
        given = pods.handle(body, policy, lambda _: facts)
        pod = msgspec.convert(template.pod, views.Pod)
    except (wire.MalformedError, msgspec.ValidationError) as error:
        raise output.UnreadableError(f"{template.owner}: its pod template is none: {error}") from None
    response = msgspec.json.decode(given.body)["response"]
    operations = msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
    after = jsonpatch.apply_patch(template.pod, operations)
    planned = admission.plan(pod, policy, facts)
    record = _record(after) if isinstance(planned, model.Injection) else {}
    return Account(
        object=template.owner,
        template=template.part,
        pods=template.pods,
        outcome=given.outcome,
        fabric=given.fabric,
        role=given.role,
        rails=planned.rails if isinstance(planned, model.Injection) else (),
        operations=operations,
        changes=_reasons(pod, planned),
        warnings=template.warnings + (() if isinstance(planned, model.Refusal) else planned.warnings),
        kept=record.get("kept", {}),
        skipped=record.get("skipped", {}),
        message=response.get("status", {}).get("message", ""),
        before=template.pod,
        after=after,
    )


def refused(account: Account) -> bool:
    """True where the pod is not created."""
    return account.outcome == answer.REFUSED


def _record(pod: Tree) -> Tree:
    """The record of the finished pod; empty where it was left out for its size."""
    text = manifests.mapping(pod, "metadata", "annotations").get(names.INJECTION)
    return manifests.mapping(msgspec.json.decode(text)) if text else {}


def _reasons(pod: views.Pod, planned: plan.Outcome) -> list[Why]:
    if not isinstance(planned, model.Injection):
        return []
    return [
        Why(
            entry=change.entry or "record",
            change=_words(pod, change),
            path=operations[-1]["path"] if operations else "",  # parents come first
            reason=change.reason,
        )
        for change, operations in patch.by_change(pod, planned.changes)
    ]


def _words(pod: views.Pod, change: model.AnyChange) -> str:
    """A change as people name it; one that has no words here by its name in the record."""
    containers = pod.spec.containers
    match change:
        case model.SetAnnotation(key=key):
            return f"annotation {key}"
        case model.AddVolume(volume=volume):
            return f"volume {volume['name']}"
        case model.AddResource(container=index, resource=resource, quantity=quantity):
            return f"{containers[index].name}: {resource} = {quantity}"
        case model.AddMount(container=index, mount=mount):
            return f"{containers[index].name}: mount {mount['mountPath']}"
        case model.AddCapability(container=index, capability=capability):
            return f"{containers[index].name}: capability {capability}"
        case model.SetPrivileged(container=index):
            return f"{containers[index].name}: privileged"
        case model.SetEnv(container=index, name=name, index=at):
            return f"{containers[index].name}: env {name}{'' if at is None else ' (replaced)'}"
        case model.UnsetEnv(container=index, index=at):
            return f"{containers[index].name}: env {containers[index].env[at].name} (removed)"
        case model.AddInitContainer(init_container=container):
            return f"init container {container['name']}"
        case _:
            return change.entry
