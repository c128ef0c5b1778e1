"""Checks of admission itself: a dry run, the policies behind the webhook, and pods that it missed or rejected."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli.checking import check_rows, expected_entries, snapshots, webhook_configurations
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.cluster import installed_names
from railwright.fabric import intent, names, text
from railwright.fabric.injection import missed
from railwright.fabric.policy import model as documents
from railwright.fabric.reasons.codes import AdmissionCode

NAME = "railwright-check"  # of the dry-run pod, which is never stored
_STRICT = {  # allowed by the `restricted` Pod Security Standard, so by every namespace
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_BY_NAMESPACE = f"{installed_names.INSTALLATION}-injected-by-namespace"  # manifests/base/admission-policy.yaml
_CONDITION = "asks-for-an-accelerator"  # its match condition that identifies training pods
_QUOTED = re.compile(r"'([^'/]+/[^'/]+)'")  # names of extended resources in that condition
_FIRST = "default"  # exists in every cluster
PLAN_SOURCES = ("policy", snapshots.FABRIC_POLICY, "namespaces")  # of the dry runs


class Plan(msgspec.Struct, frozen=True):
    """A dry run to make. `problem` is why it cannot be made, "" if it can."""

    fabric: str
    namespace: str = ""
    problem: str = ""
    privileged: bool = False  # the fabric makes containers privileged


def list_plans(snapshot: snapshots.ClusterSnapshot, namespace: str = "") -> tuple[Plan, ...]:
    """Return a dry run for each fabric, in the given namespace or in the first one that may use the fabric."""
    document = snapshot.policy
    if document is None:
        return ()
    return tuple(_build_plan(snapshot, name, fabric, namespace) for name, fabric in document.fabrics.items())


def build_pod(plan: Plan, accelerator: str) -> Mapping[str, Any]:
    """Return the manifest of the dry-run pod. It requests one accelerator and nothing else that could be rejected.

    For a privileged fabric it has no security context: the strict one excludes privileged containers.
    """
    container: dict[str, Any] = {
        "name": "probe",
        "image": "railwright.invalid/check",
        "resources": {"limits": {accelerator: "1", "cpu": "1", "memory": "1Gi"}},
    }
    if not plan.privileged:
        container["securityContext"] = _STRICT
    labels = {names.FABRIC: plan.fabric}
    metadata = {"name": NAME, "namespace": plan.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _build_plan(snapshot: snapshots.ClusterSnapshot, name: str, fabric: documents.Fabric, given: str) -> Plan:
    namespaces = sorted(
        snapshot.get_all("namespaces"),
        key=lambda item: (_get_label(item, expected_entries.NAME_LABEL) != _FIRST, snapshots.get_name(item)),
    )
    allowed = [
        snapshots.get_name(namespace)
        for namespace in namespaces
        if fabric.namespaces.matches(snapshots.get_map(namespace, "metadata", "labels"))
        and snapshots.get_name(namespace) not in ("kube-system", snapshot.namespace)
        and not snapshots.get_path(namespace, "metadata", "deletionTimestamp")
    ]
    if given and given not in allowed:
        return Plan(name, problem=f"namespace {given} may not use fabric {name}, or does not exist")
    if not allowed:
        return Plan(
            name, problem=f"no namespace may use fabric {name}: the labels of no namespace match its `namespaces`"
        )
    return Plan(name, given or allowed[0], privileged=fabric.security.privileged)


def _check_dry_runs(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
    if snapshot.policy is None:
        yield skip("there is no valid policy to test")
    for dry_run in snapshot.dry_runs:
        yield skip(dry_run.problem, subject=dry_run.fabric) if dry_run.problem else _check_dry_run(dry_run)


def _check_dry_run(dry_run: snapshots.DryRun) -> check_rows.Assessment:
    subject, location = dry_run.fabric, f"in namespace {dry_run.namespace}"
    if dry_run.forbidden:
        return skip(
            f"you may not create pods -n {dry_run.namespace}; give --namespace-for-probe", subject=subject, unread=True
        )
    if dry_run.refusal:
        return fail(f"{location}: {dry_run.refusal}", subject=subject)
    annotation = snapshots.get_map(dry_run.pod, "metadata", "annotations").get(names.INJECTION)
    if not annotation:
        return fail(
            f"a pod {location} was admitted without an injection record: the API server did not call the webhook",
            subject=subject,
        )
    return ok(f"{location}", subject=subject)


def _check_in_force(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
    result = snapshot.policy_result
    for dry_run in snapshot.dry_runs:
        record = _parse_record(dry_run)
        if record is not None and isinstance(result, documents.Policy):
            if record.policy == result.digest:
                yield ok(result.digest[:15], subject=dry_run.fabric)
            else:
                yield fail(
                    f"the webhook uses {record.policy[:15] or 'an unknown policy'}, the "
                    f"{snapshot.policy_name.partition(' ')[0]} has {result.digest[:15]}",
                    subject=dry_run.fabric,
                )


def _parse_record(dry_run: snapshots.DryRun) -> intent.Record | None:
    """Return the record of the pod of a dry run, an empty one if it is invalid, None if there is none."""
    annotation = snapshots.get_map(dry_run.pod, "metadata", "annotations").get(names.INJECTION)
    try:
        return intent.decode_record(str(annotation)) if annotation else None
    except intent.InvalidRecordError:
        return intent.Record()


def _check_policies(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Check the ValidatingAdmissionPolicies that reject opted-in pods without an injection record."""
    if "admission-policies" in snapshot.unknown:
        return skip("the API server has no kind ValidatingAdmissionPolicy")
    own_policies = {
        snapshots.get_name(policy): policy for policy in snapshot.get_all("admission-policies") if _is_ours(policy)
    }
    if not own_policies:
        return warn(
            "no ValidatingAdmissionPolicy of railwright: a pod that bypasses the webhook runs without its network"
        )
    actions: dict[str, set[str]] = {}
    for binding in snapshot.get_all("admission-bindings"):
        policy_actions = actions.setdefault(str(snapshots.get_path(binding, "spec", "policyName")), set())
        policy_actions.update(snapshots.get_list(binding, "spec", "validationActions"))
    unbound = [name for name in own_policies if name not in actions]
    if unbound and snapshot.is_disabled:
        return fail(check_rows.DISABLED, check_rows.ENABLE)
    if unbound:
        return fail(f"{snapshots.join_limited(unbound)} has no ValidatingAdmissionPolicyBinding, so it has no effect")
    without_deny = [name for name in own_policies if "Deny" not in actions[name]]
    if without_deny:
        return warn(f"{snapshots.join_limited(without_deny)} is bound without Deny: the pods it reports still run")
    by_namespace = own_policies.get(_BY_NAMESPACE)
    unknown = [
        name
        for name in snapshots.list_accelerators(snapshot)
        if by_namespace and not _names_accelerator(by_namespace, name)
    ]
    if unknown:
        return warn(
            f"{_BY_NAMESPACE} does not list the policy's accelerator {snapshots.join_limited(unknown)}: "
            "pods of an opted-in "
            "namespace are not checked",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: add it to the condition asks-for-an-accelerator",
        )
    surplus = (
        [name for name in _list_resources(by_namespace) if name not in snapshots.list_accelerators(snapshot)]
        if snapshot.policy
        else []
    )
    if surplus:
        return warn(
            f"{_BY_NAMESPACE} lists {snapshots.join_limited(surplus)}, which is not an accelerator of the "
            "policy: pods of an "
            "opted-in namespace that request it get no injection record, and are rejected",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: remove it from the condition "
            "asks-for-an-accelerator",
        )
    return ok(snapshots.join_limited(own_policies))


def _list_resources(policy: Any) -> list[str]:
    """Return the resources in the condition that identifies training pods."""
    conditions = snapshots.get_list(policy, "spec", "matchConditions")
    expressions = [str(condition.get("expression")) for condition in conditions if condition.get("name") == _CONDITION]
    return [name for expression in expressions for name in _QUOTED.findall(expression)]


def _names_accelerator(policy: Any, accelerator: str) -> bool:
    """True if the condition that identifies training pods names the accelerator, or does not exist."""
    conditions = snapshots.get_list(policy, "spec", "matchConditions")
    expressions = [str(condition.get("expression")) for condition in conditions if condition.get("name") == _CONDITION]
    return not expressions or any(f"'{accelerator}'" in expression for expression in expressions)


def _is_ours(policy: Any) -> bool:
    name = snapshots.get_name(policy)
    labels = snapshots.get_map(policy, "metadata", "labels")
    is_labelled = labels.get("app.kubernetes.io/part-of") == "railwright"
    return is_labelled or name.startswith("railwright") or name.endswith(names.DOMAIN)


def _get_label(obj: Any, key: str) -> str:
    return str(snapshots.get_map(obj, "metadata", "labels").get(key, ""))


_RECENT = dt.timedelta(hours=1)  # the API server keeps Events this long (--event-ttl)


def _check_uninjected(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    labels = {
        snapshots.get_name(item): snapshots.get_map(item, "metadata", "labels")
        for item in snapshot.get_all("namespaces")
    }
    accelerators = snapshot.policy.accelerators if snapshot.policy else ()
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    unlabelled = (pod for pod in snapshot.namespaced_pods if names.FABRIC not in pod.metadata.labels)
    injected, missing = 0, []
    for pod in (*snapshot.get_all("pods"), *unlabelled):
        namespace = pod.metadata.namespace
        label = missed.find_label(pod, labels.get(namespace), accelerators, excluded)
        if label is not None and not missed.is_in_audit(label, snapshot.policy):  # those have the row audit-mode
            missing.append(f"{namespace}/{pod.metadata.name}")
        injected += names.INJECTION in pod.metadata.annotations and not intent.read_record(pod).is_audit
    opted_in = injected + len(missing)
    if missing:
        return fail(f"{len(missing)} of {opted_in}: {snapshots.join_limited(missing)}")
    if snapshots.NAMESPACED_PODS in snapshot.unread:
        return skip(snapshot.unread[snapshots.NAMESPACED_PODS], unread=True)
    return ok(text.format_count(opted_in, "pod") if opted_in else "no pod has opted in")


def _check_placements(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Warn of running pods whose placement says that their scheduler placed them without the extender."""
    bound = [pod for pod in snapshot.get_all("pods") if names.PLACEMENT in pod.metadata.annotations]
    code = f'"{AdmissionCode.PLACED_WITHOUT_EXTENDER.value}"'
    unasked = [pod for pod in bound if code in pod.metadata.annotations[names.PLACEMENT]]
    if not unasked:
        return ok(text.format_count(len(bound), "pod") if bound else "no opted-in pod is bound")
    schedulers = sorted({pod.spec.scheduler_name or "default-scheduler" for pod in unasked})
    named = snapshots.join_limited([f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in unasked])
    share = text.format_count(len(bound), "pod", part=len(unasked))
    return warn(f"{share} without it, by {snapshots.join_limited(schedulers)}: {named}")


def _check_rejected(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    recent = [event for event in snapshot.get_all("refusals") if snapshot.now - _get_time(event) < _RECENT]
    if not recent:
        return ok("none in the last hour")
    newest = max(recent, key=_get_time)
    involved = snapshots.get_map(newest, "involvedObject")
    owner = f"{involved.get('kind')} {involved.get('namespace')}/{involved.get('name')}"
    return warn(f"{len(recent)} in the last hour; most recently {owner}: {snapshots.get_path(newest, 'message') or ''}")


def _get_time(event: Any) -> dt.datetime:
    for timestamp in (
        snapshots.get_path(event, "series", "lastObservedTime"),
        snapshots.get_path(event, "lastTimestamp"),
        snapshots.get_path(event, "eventTime"),
        snapshots.get_path(event, "metadata", "creationTimestamp"),
    ):
        if timestamp:
            return dt.datetime.fromisoformat(timestamp)
    return dt.datetime.fromtimestamp(0, dt.UTC)


CHECKS: check_rows.Checks = {
    "admission-policy": _check_policies,
    "dry-run": _check_dry_runs,
    "policy-in-force": _check_in_force,
    "uninjected": _check_uninjected,
    "placed-without-extender": _check_placements,
    "refused": _check_rejected,
}
