"""Checks of admission itself: a dry run for each fabric, and the policies behind the webhook."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from railwright.cli.checking import check_rows, policy, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, fail, ok, require, skip, warn
from railwright.cli.checking.snapshots import DryRun, Snapshot, get_list, get_map, get_name, get_path
from railwright.cli.checking.webhook_configurations import NAME_LABEL
from railwright.cluster import installed_names
from railwright.fabric import intent, names, text
from railwright.fabric.injection import opt_in
from railwright.fabric.policy import model

NAME = "railwright-check"  # of the dry-run pod, which is never stored
_STRICT = {  # allowed by the `restricted` Pod Security Standard, so by every namespace
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_INJECTED = f"{installed_names.INSTALLATION}-injected"
_BY_NAMESPACE = f"{installed_names.INSTALLATION}-injected-by-namespace"  # manifests/base/admission-policy.yaml
_WARNING_ONLY = {f"{installed_names.INSTALLATION}-{name}" for name in ("late-label", "unpassed-label")}
_CONDITION = "asks-for-an-accelerator"  # its match condition that identifies training pods
_QUOTED = re.compile(r"'([^'/]+/[^'/]+)'")  # names of extended resources in that condition
_FIRST = "default"  # exists in every cluster
PLAN_SOURCES = ("policy", "namespaces")  # of the dry runs


# --- dry runs ---------------------------------------------------------------------------------------------


def list_plans(snapshot: Snapshot, namespace: str = "") -> list[DryRun]:
    """Return a dry run for each fabric, in the given namespace or in the first one that may use the fabric."""
    return [_build_plan(snapshot, name, fabric, namespace) for name, fabric in snapshot.fabrics.items()]


def build_pod(plan: DryRun, accelerator: str) -> Mapping[str, Any]:
    """Return the manifest of the dry-run pod. It requests accelerators and nothing else that could be rejected.

    It requests one, or all of a node if the fabric serves one pod on a node. For a privileged fabric it has no security
    context: the strict one excludes privileged containers.
    """
    container: dict[str, Any] = {
        "name": "probe",
        "image": "railwright.invalid/check",
        "resources": {"limits": {accelerator: str(plan.accelerators), "cpu": "1", "memory": "1Gi"}},
    }
    if not plan.privileged:
        container["securityContext"] = _STRICT
    labels = {names.FABRIC: plan.fabric}
    metadata = {"name": NAME, "namespace": plan.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _build_plan(snapshot: Snapshot, name: str, fabric: model.Fabric, given: str) -> DryRun:
    allowed = [
        get_name(namespace)
        for namespace in snapshot.get_all("namespaces")
        if fabric.namespaces.matches(get_map(namespace, "metadata", "labels"))
        and get_name(namespace) not in ("kube-system", snapshot.namespace)
        and not get_path(namespace, "metadata", "deletionTimestamp")
    ]
    if given and given not in allowed:
        return DryRun(name, problem=f"namespace {given} may not use fabric {name}, or does not exist")
    if not allowed:
        problem = f"no namespace may use fabric {name}: the labels of no namespace match its `namespaces`"
        return DryRun(name, problem=problem)
    labels = snapshot.namespace_labels
    first = min(allowed, key=lambda namespace: (labels[namespace].get(NAME_LABEL) != _FIRST, namespace))
    accelerators = fabric.gpus_per_node if fabric.whole_node and fabric.gpus_per_node else 1
    return DryRun(name, given or first, privileged=fabric.security.privileged, accelerators=accelerators)


def _list_dry_runs(snapshot: Snapshot) -> Mapping[str, DryRun]:
    return {dry_run.fabric: dry_run for dry_run in snapshot.get_all(snapshots.DRY_RUNS)}


def _check_dry_run(snapshot: Snapshot, dry_run: DryRun) -> Assessment:
    location = f"in namespace {dry_run.namespace}"
    require(not dry_run.problem, dry_run.problem)
    if dry_run.forbidden:
        return skip(f"you may not create pods -n {dry_run.namespace}; give --namespace-for-probe", unread=True)
    if dry_run.refusal:
        return fail(f"{location}: {dry_run.refusal}")
    if _get_record(dry_run):
        return ok(location)
    if not opt_in.is_label_enforced(dry_run.fabric, snapshot.policy):
        return skip(f"{location}: the fabric is in mode warn, which adds no record")
    detail = f"a pod {location} was admitted without an injection record"
    return fail(f"{detail}: the API server did not call the webhook")


def _list_injected(snapshot: Snapshot) -> Mapping[str, DryRun]:
    return {name: dry_run for name, dry_run in _list_dry_runs(snapshot).items() if _get_record(dry_run)}


def _check_in_force(snapshot: Snapshot, dry_run: DryRun) -> Assessment:
    expected = policy.require_policy(snapshot).digest
    try:
        digest = intent.decode_record(_get_record(dry_run)).policy
    except intent.InvalidRecordError:
        digest = ""
    if digest == expected:
        return ok(expected[:15])
    return fail(f"the webhook uses {digest[:15] or 'an unknown policy'}, the ConfigMap has {expected[:15]}")


def _get_record(dry_run: DryRun) -> str:
    return str(get_map(dry_run.pod, "metadata", "annotations").get(names.INJECTION) or "")


# --- policies behind the webhook --------------------------------------------------------------------------


def _check_policies(snapshot: Snapshot) -> Assessment:
    """Check the ValidatingAdmissionPolicies that reject opted-in pods without an injection record."""
    require("admission-policies" not in snapshot.unknown, "the API server has no kind ValidatingAdmissionPolicy")
    own_policies = {get_name(policy): policy for policy in snapshot.get_all("admission-policies") if _is_ours(policy)}
    if not own_policies:
        return warn(
            "no ValidatingAdmissionPolicy of railwright: a pod that bypasses the webhook runs without its network"
        )
    actions = _list_actions(snapshot)
    unbound = text.join_first((name for name in own_policies if name not in actions), 5)
    if unbound and snapshot.is_disabled:
        return fail(check_rows.DISABLED, check_rows.ENABLE)
    if unbound:
        return fail(f"{unbound} has no ValidatingAdmissionPolicyBinding, so it has no effect")
    rejecting = (name for name in own_policies if name not in _WARNING_ONLY)
    if without_deny := text.join_first((name for name in rejecting if "Deny" not in actions[name]), 5):
        return warn(f"{without_deny} is bound without Deny: the pods it reports still run")
    return _check_accelerators(snapshot, own_policies.get(_BY_NAMESPACE)) or ok(text.join_first(own_policies, 5))


def _list_actions(snapshot: Snapshot) -> Mapping[str, Collection[str]]:
    """Return the actions of each ValidatingAdmissionPolicy that has a binding."""
    actions: dict[str, set[str]] = {}
    for binding in snapshot.get_all("admission-bindings"):
        policy_actions = actions.setdefault(str(get_path(binding, "spec", "policyName")), set())
        policy_actions.update(get_list(binding, "spec", "validationActions"))
    return actions


def denies_uninjected(snapshot: Snapshot) -> bool:
    """True if the API server itself rejects opted-in pods without an injection record."""
    return "Deny" in _list_actions(snapshot).get(_INJECTED, ())


def _check_accelerators(snapshot: Snapshot, guard: Any) -> Assessment | None:
    """Return a warning if the condition that identifies training pods and the policy name different accelerators."""
    conditions = get_list(guard, "spec", "matchConditions")
    expressions = [str(condition.get("expression")) for condition in conditions if condition.get("name") == _CONDITION]
    if not expressions:
        return None
    accelerators = snapshots.list_accelerators(snapshot)
    condition = "\n".join(expressions)
    if unknown := text.join_first((name for name in accelerators if f"'{name}'" not in condition), 5):
        return warn(
            f"{_BY_NAMESPACE} does not list the policy's accelerator {unknown}: pods of an opted-in namespace are not "
            "checked",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: add it to the condition {_CONDITION}",
        )
    surplus = text.join_first((name for name in _QUOTED.findall(condition) if name not in accelerators), 5)
    if surplus and snapshot.policy:
        return warn(
            f"{_BY_NAMESPACE} lists {surplus}, which is not an accelerator of the policy: pods of an opted-in "
            "namespace that request it get no injection record, and are rejected",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: remove it from the condition {_CONDITION}",
        )
    return None


def _is_ours(policy: Any) -> bool:
    name, labels = get_name(policy), get_map(policy, "metadata", "labels")
    is_labelled = labels.get("app.kubernetes.io/part-of") == "railwright"
    return is_labelled or name.startswith("railwright") or name.endswith(names.DOMAIN)


CHECKS: Checks = {
    "admission-policy": _check_policies,
    "dry-run": check_rows.for_each(_list_dry_runs, _check_dry_run),
    "policy-in-force": check_rows.for_each(_list_injected, _check_in_force),
}
