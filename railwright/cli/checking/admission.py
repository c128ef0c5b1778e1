"""Rows about admission itself: a dry run for each fabric, and the policies behind the webhook."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from railwright.cli.checking import snapshots
from railwright.cli.checking.rows import Assessment, fail, for_each, ok, require, require_policy, row, skip, warn
from railwright.cli.checking.snapshots import DryRun, Snapshot, get_list, get_map, get_name, get_path
from railwright.cluster import installed_names
from railwright.fabric import intent, names, text
from railwright.fabric.policy import model

GROUP = "admission"

_INJECTED = f"{installed_names.INSTALLATION}-injected"  # manifests/base/admission-policy.yaml
_BY_NAMESPACE = f"{_INJECTED}-by-namespace"
_QUOTED = re.compile(r"'([^'/]+/[^'/]+)'")  # names of extended resources in its match condition
_CONDITION = "asks-for-an-accelerator"  # its match condition that identifies training pods
_STRICT = {  # allowed by the `restricted` Pod Security Standard, so by every namespace
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


# --- policies behind the webhook --------------------------------------------------------------------------


@row(
    "apply the ValidatingAdmissionPolicy and its binding again: {apply admissionPolicy.mode=Deny}",
    reads="admission-policies admission-bindings",
)
def check_admission_policy(snapshot: Snapshot) -> Assessment:
    """Pods that bypass the webhook are rejected.

    The ValidatingAdmissionPolicies that reject opted-in pods without an injection record are in force. They are bound
    with `Deny`, and list the policy's accelerators. An installation may leave them out (`admissionPolicy.mode: Off`).
    """
    require("admission-policies" not in snapshot.unknown, "the API server has no kind ValidatingAdmissionPolicy")
    own = {get_name(policy): policy for policy in snapshot.get_all("admission-policies") if _is_ours(policy)}
    if not own:
        return skip(
            "no ValidatingAdmissionPolicy of railwright (chart value admissionPolicy.mode): labelled pods run without "
            "their network while webhooks are removed or set to `failurePolicy: Ignore`"
        )
    actions = _list_actions(snapshot)
    unbound = text.join_first((name for name in own if name not in actions), 5)
    if unbound and snapshot.is_disabled:
        return fail(snapshots.DISABLED, snapshots.ENABLE)
    if unbound:
        return fail(f"{unbound} has no ValidatingAdmissionPolicyBinding, so it has no effect")
    if without_deny := text.join_first((name for name in own if "Deny" not in actions[name]), 5):
        return warn(f"{without_deny} is bound without Deny: the pods it reports still run")
    return _compare_accelerators(snapshot, own.get(_BY_NAMESPACE)) or ok(text.join_first(own, 5))


def _list_actions(snapshot: Snapshot) -> Mapping[str, Collection[str]]:
    """Return the actions of each ValidatingAdmissionPolicy that has a binding."""
    actions: dict[str, set[str]] = {}
    for binding in snapshot.get_all("admission-bindings"):
        policy_actions = actions.setdefault(str(get_path(binding, "spec", "policyName")), set())
        policy_actions.update(get_list(binding, "spec", "validationActions"))
    return actions


def _compare_accelerators(snapshot: Snapshot, guard: Any) -> Assessment | None:
    """Return a warning if the condition that identifies training pods and the policy name different accelerators."""
    conditions = get_list(guard, "spec", "matchConditions")
    expressions = [str(condition.get("expression")) for condition in conditions if condition.get("name") == _CONDITION]
    if not expressions:
        return None
    listed, expected = {*_QUOTED.findall("\n".join(expressions))}, {*snapshot.accelerators}
    if snapshot.policy is None or listed == expected:
        return None
    fix = f"give its condition {_CONDITION} the policy's accelerators: kubectl edit validatingadmissionpolicy "
    if missing := text.join_first(sorted(expected - listed), 5):
        problem = f"does not list the policy's accelerator {missing}: pods of an opted-in namespace are not checked"
    else:
        problem = (
            f"lists {text.join_first(sorted(listed - expected), 5)}, which is no accelerator of the policy: pods of "
            "an opted-in namespace that request it get no injection record, and are rejected"
        )
    return warn(f"{_BY_NAMESPACE} {problem}", f"{fix}{_BY_NAMESPACE}")


def _is_ours(policy: Any) -> bool:
    name, labels = get_name(policy), get_map(policy, "metadata", "labels")
    is_labelled = labels.get("app.kubernetes.io/part-of") == "railwright"
    return is_labelled or name.startswith("railwright") or name.endswith(names.DOMAIN)


@row(
    "set `mode: enforce`, or remove the key: {edit policy}. Until then let opted-in pods pass: {apply "
    "admissionPolicy.mode=Warn}",
    reads="policy",
)
def check_warn_mode(snapshot: Snapshot) -> Assessment:
    """The policy is enforced.

    Warns in mode `warn`. Fails if the ValidatingAdmissionPolicies are bound with `Deny`: they reject an opted-in pod
    without an injection record, and in this mode a pod has none. Instead of the chart's value, the label
    `railwright.io/uninjected: warn` lets the pods of one namespace pass.
    """
    if intent.is_enforced(require_policy(snapshot).document):
        return ok()
    if "Deny" in _list_actions(snapshot).get(_INJECTED, ()):
        return fail("the admission policies deny opted-in pods, because mode warn adds no record")
    return warn("opted-in pods are admitted unchanged, with a warning")


# --- dry runs ---------------------------------------------------------------------------------------------


def list_plans(snapshot: Snapshot, namespace: str = "") -> list[DryRun]:
    """Return a dry run for each fabric, in the given namespace or in the first one that may use the fabric."""
    return [_build_plan(snapshot, name, fabric, namespace) for name, fabric in snapshot.fabrics.items()]


def _build_plan(snapshot: Snapshot, name: str, fabric: model.Fabric, given: str) -> DryRun:
    allowed = {
        namespace: labels.get(snapshots.NAME_LABEL) != "default"  # which exists in every cluster, so it is the first
        for namespace, labels in snapshot.namespace_labels.items()
        if fabric.allows_namespace(labels)
        and namespace not in ("kube-system", snapshot.namespace)
        and not get_path(snapshot.find("namespaces", namespace), "metadata", "deletionTimestamp")
    }
    if given and given not in allowed:
        return DryRun(name, problem=f"namespace {given} may not use fabric {name}, or does not exist")
    if not allowed:
        problem = f"no namespace may use fabric {name}: the labels of no namespace match its `namespaces`"
        return DryRun(name, problem=problem)
    first = min(allowed, key=lambda namespace: (allowed[namespace], namespace))
    return DryRun(name, given or first, privileged=fabric.security.privileged)


def build_pod(plan: DryRun, accelerator: str) -> Mapping[str, Any]:
    """Return the manifest of the dry-run pod. It requests an accelerator and nothing else that could be rejected.

    For a privileged fabric it has no security context: the strict one excludes privileged containers.
    """
    limits = {accelerator: "1", "cpu": "1", "memory": "1Gi"}
    container: dict[str, Any] = {"name": "probe", "image": "railwright.invalid/check", "resources": {"limits": limits}}
    if not plan.privileged:
        container["securityContext"] = _STRICT
    metadata = {"name": "railwright-check", "namespace": plan.namespace, "labels": {names.FABRIC: plan.fabric}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


@row(
    "the detail is the API server's error; the webhook's log has its side: kubectl -n {namespace} logs "
    "deployment/{webhook}",
    reads="policy namespaces",
    after="webhook-replicas webhook-certificate ca-bundle entries-complete entries-match policy rail-networks",
)
@for_each(lambda snapshot: {dry_run.fabric: dry_run for dry_run in snapshot.get_all(snapshots.DRY_RUNS)})
def check_dry_run(snapshot: Snapshot, dry_run: DryRun) -> Assessment:
    """A dry-run pod gets its network, by the policy in force.

    For each fabric, an opted-in pod is created as a dry run and must come back with an injection record. Nothing is
    stored or scheduled. If it fails, the detail is the API server's error: `connection refused`, `x509: ...`, `context
    deadline exceeded`, or a rejection by the webhook or by something else, such as a quota or a Pod Security level; in
    that case use `--namespace-for-probe`. Not checked without permission to create pods.

    The injection record names the policy in the ConfigMap. A new policy takes effect within a second; if the record
    keeps naming another, a replica cannot watch the ConfigMap, or uses a `--policy` file.
    """
    location = f"in namespace {dry_run.namespace}"
    require(not dry_run.problem, dry_run.problem)
    if dry_run.forbidden:
        return skip(f"you may not create pods -n {dry_run.namespace}; give --namespace-for-probe", unread=True)
    if dry_run.refusal:
        return fail(f"{location}: {dry_run.refusal}")
    record = str(get_map(dry_run.pod, "metadata", "annotations").get(names.INJECTION) or "")
    if not record and snapshot.policy is not None and not intent.is_enforced(snapshot.policy):
        return skip(f"{location}: the policy is in mode warn, which adds no record")
    if not record:
        detail = f"a pod {location} was admitted without an injection record"
        return fail(f"{detail}: the API server did not call the webhook")
    result = snapshot.policy_result
    expected = require(result.digest if isinstance(result, model.Policy) else "", "there is no valid policy")
    try:
        digest = intent.decode_record(record).policy
    except intent.InvalidRecordError:
        digest = ""
    if digest == expected:
        return ok(f"{location}, by policy {expected[:15]}")
    return fail(
        f"the webhook uses {digest[:15] or 'an unknown policy'}, the ConfigMap has {expected[:15]}",
        "a new policy takes effect within a second; if this persists, read the webhook's log: kubectl -n {namespace} "
        "logs deployment/{webhook}",
    )
