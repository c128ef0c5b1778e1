"""Rows about admission as it really goes: a pod created as a dry run, and the policies behind the webhook."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.checking import model, nodes, registrations, shipped
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.fabric import names
from railwright.fabric.policy import model as documents
from railwright.fabric.policy import selectors

NAME = "railwright-check"  # of the pod that is never stored
_STRICT = {  # no level of pod security refuses such a container, whatever the namespace enforces
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_BY_NAMESPACE = "railwright-injected-by-namespace"  # manifests/base/admission-policy.yaml
_ASKS = "asks-for-an-accelerator"  # the condition there that tells training pods
_QUOTED = re.compile(r"'([^'/]+/[^'/]+)'")  # names of extended resources in it
_FIRST = "default"  # the namespace every cluster has


class Plan(msgspec.Struct, frozen=True):
    """One dry run to make; `problem` says why there is none."""

    fabric: str
    namespace: str = ""
    problem: str = ""


class _Record(msgspec.Struct):
    """What is read of the record of CONTRACT section 5."""

    policy: str = ""
    fabric: str = ""


def plans(seen: sight.Seen, namespace: str = "") -> tuple[Plan, ...]:
    """A dry run for every fabric, in the given namespace or in the first that may use it."""
    document = seen.policy
    if document is None:
        return ()
    return tuple(_plan(seen, name, fabric, namespace) for name, fabric in document.fabrics.items())


def pod(plan: Plan, accelerator: str) -> Mapping[str, Any]:
    """The pod of a dry run: it asks for one accelerator, and for nothing else that could be refused."""
    container = {
        "name": "probe",
        "image": "railwright.invalid/check",
        "resources": {"limits": {accelerator: "1", "cpu": "1", "memory": "1Gi"}},
        "securityContext": _STRICT,
    }
    labels = {names.FABRIC: plan.fabric}
    metadata = {"name": NAME, "namespace": plan.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _plan(seen: sight.Seen, name: str, fabric: documents.Fabric, given: str) -> Plan:
    chosen = sorted(
        seen.all("namespaces"), key=lambda each: (_label(each, shipped.NAME_LABEL) != _FIRST, sight.name_of(each))
    )
    allowed = [
        sight.name_of(each)
        for each in chosen
        if selectors.matches(fabric.namespaces, sight.dig(each, "metadata", "labels") or {})
        and sight.name_of(each) not in ("kube-system", seen.namespace)
        and not sight.dig(each, "metadata", "deletionTimestamp")
    ]
    if given and given not in allowed:
        return Plan(name, problem=f"namespace {given} may not use fabric {name}, or does not exist")
    if not allowed:
        return Plan(name, problem=f"no namespace may use fabric {name}: no labels match its `namespaces`")
    return Plan(name, given or allowed[0])


def _dry_runs(seen: sight.Seen) -> Iterator[model.Verdict]:
    if seen.policy is None:
        yield skip("there is no policy to ask by")
    for trial in seen.trials:
        yield skip(trial.problem, subject=trial.fabric) if trial.problem else _dry_run(trial)


def _dry_run(trial: sight.Trial) -> model.Verdict:
    subject, where = trial.fabric, f"in namespace {trial.namespace}"
    if trial.forbidden:
        return skip(f"you may not create pods {where}; give --namespace-for-probe", subject=subject)
    if trial.refusal:
        return fail(f"{where}: {trial.refusal}", subject=subject)
    written = (sight.dig(trial.pod, "metadata", "annotations") or {}).get(names.INJECTION)
    if not written:
        return fail(f"a pod {where} went through and has no record: nobody called the webhook", subject=subject)
    return ok(f"{where}", subject=subject)


def _in_force(seen: sight.Seen) -> Iterator[model.Verdict]:
    text = seen.policy_text
    result = None if text is None else sight.read_policy(text)
    for trial in seen.trials:
        record = _record(trial)
        if record is not None and isinstance(result, documents.Policy):
            if record.policy == result.digest:
                yield ok(result.digest[:15], subject=trial.fabric)
            else:
                yield fail(
                    f"pods are decided by {record.policy[:15] or 'an unknown policy'}, the ConfigMap is "
                    f"{result.digest[:15]}",
                    subject=trial.fabric,
                )


def _record(trial: sight.Trial) -> _Record | None:
    written = (sight.dig(trial.pod, "metadata", "annotations") or {}).get(names.INJECTION)
    try:
        return msgspec.json.decode(written, type=_Record) if written else None
    except (msgspec.MsgspecError, TypeError):
        return _Record()


def _guard(seen: sight.Seen) -> model.Verdict:
    """The ValidatingAdmissionPolicies that refuse opted-in pods without a record."""
    if "admission-policies" in seen.unknown:
        return skip("the API server knows no ValidatingAdmissionPolicy")
    ours = {sight.name_of(each): each for each in seen.all("admission-policies") if _is_ours(each)}
    if not ours:
        return warn("no ValidatingAdmissionPolicy of ours: a pod that slips past the webhook runs without its network")
    actions: dict[str, set[str]] = {}
    for each in seen.all("admission-bindings"):
        found = actions.setdefault(str(sight.dig(each, "spec", "policyName")), set())
        found.update(sight.dig(each, "spec", "validationActions") or ())
    loose = [name for name in ours if name not in actions]
    if loose:
        return fail(f"{sight.listed(loose)} has no ValidatingAdmissionPolicyBinding: it is in force nowhere")
    mild = [name for name in ours if "Deny" not in actions[name]]
    if mild:
        return warn(f"{sight.listed(mild)} is bound without Deny: what it finds runs all the same")
    by_namespace = ours.get(_BY_NAMESPACE)
    unknown = [name for name in nodes.accelerators(seen) if by_namespace and not _speaks_of(by_namespace, name)]
    if unknown:
        return warn(
            f"{_BY_NAMESPACE} does not know the policy's accelerator {sight.listed(unknown)}: pods of a namespace "
            "that opts in go unchecked",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: name it in the condition asks-for-an-accelerator",
        )
    more = [name for name in _names(by_namespace) if name not in nodes.accelerators(seen)] if seen.policy else []
    if more:
        return warn(
            f"{_BY_NAMESPACE} names {sight.listed(more)}, which is no accelerator of the policy: pods that ask for it "
            "in a namespace that opts in get no record, and are refused for that",
            f"kubectl edit validatingadmissionpolicy {_BY_NAMESPACE}: take it out of the condition "
            "asks-for-an-accelerator",
        )
    return ok(sight.listed(ours))


def _names(policy: Any) -> list[str]:
    """The resources that the condition names."""
    conditions = sight.dig(policy, "spec", "matchConditions") or ()
    asked = [str(each.get("expression")) for each in conditions if each.get("name") == _ASKS]
    return [name for each in asked for name in _QUOTED.findall(each)]


def _speaks_of(policy: Any, accelerator: str) -> bool:
    """True where the condition that tells training pods names the accelerator, or there is no such condition."""
    conditions = sight.dig(policy, "spec", "matchConditions") or ()
    asked = [str(each.get("expression")) for each in conditions if each.get("name") == _ASKS]
    return not asked or any(f"'{accelerator}'" in each for each in asked)


def _is_ours(policy: Any) -> bool:
    name = sight.name_of(policy)
    return name.startswith("railwright") or name.endswith(names.DOMAIN)


def _label(obj: Any, key: str) -> str:
    return str((sight.dig(obj, "metadata", "labels") or {}).get(key, ""))


def rows() -> Iterator[Row]:
    """The group `admission`."""
    basis: Sequence[str] = (
        "webhook-replicas", "webhook-endpoints", "webhook-pair", "webhook-names", "webhook-validity", "ca-bundle",
        "ca-validity", *(row.anchor for row in registrations.rows()), "policy-exists", "policy-valid", "rail-networks",
    )  # fmt: skip
    yield Row("admission-policy", "a pod that slips past the webhook is refused", _guard,
              "kubectl apply -k manifests/base (it has the ValidatingAdmissionPolicy and its binding)",
              ("admission-policies", "admission-bindings"), ("namespace",))  # fmt: skip
    yield Row("dry-run", "a pod that opts in gets its network", _dry_runs,
              "the sentence says what the API server met, the webhook's log what it saw: "
              f"kubectl -n {names.NAMESPACE} logs deployment/{sight.WEBHOOK}",
              needs=tuple(basis))  # fmt: skip
    yield Row("policy-in-force", "pods are decided by the policy of the ConfigMap", _in_force,
              "the newest policy takes a second to be in force; if this stays, see the webhook's log: "
              f"kubectl -n {names.NAMESPACE} logs deployment/{sight.WEBHOOK}",
              needs=(*basis, "dry-run"))  # fmt: skip
