"""Rows about admission: the webhook configurations, the policy, and the ValidatingAdmissionPolicies."""

import functools
import importlib.resources
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Assessment, State, fail, ok, row, skip, warn
from railwright.cli.checking.snapshots import (
    CONFIGURATION,
    NAME_LABEL,
    NAMESPACE,
    POLICY,
    WEBHOOK,
    Snapshot,
    get_list,
    get_map,
    get_path,
    list_namespaces,
    read_selector,
)
from railwright.cluster import policies
from railwright.fabric import names, text

GROUP = "admission"

_EDIT = f"kubectl edit mutatingwebhookconfiguration {CONFIGURATION}"
_MAX_SECONDS = 10  # the API's default of timeoutSeconds; railwright answers faster
_Hook = Mapping[str, Any]  # an entry of a webhook configuration


@functools.cache
def read_expected() -> Mapping[str, _Hook]:
    """Return this release's entries of manifests/base/admission.yaml by name, for this installation."""
    content = importlib.resources.files("railwright.cli.checking").joinpath("webhook_entries.json").read_text()
    content = content.replace(f'"{names.NAMESPACE}"', f'"{NAMESPACE}"').replace('"railwright-webhook"', f'"{WEBHOOK}"')
    return {hook["name"]: hook for hook in json.loads(content)}


@row(rows.APPLY_WEBHOOKS)
def check_webhook_entries(snapshot: Snapshot) -> Assessment:
    """Webhook configurations exist, and their entries are those of this release.

    Compares each entry with `manifests/base/admission.yaml`. A URL, more rules, and more namespaces that are excluded
    or selected by name are allowed. Without the MutatingWebhookConfiguration the API server does not call the webhook:
    the admission policy rejects labelled pods, or they run over TCP. `railwright disable` deletes it and keeps a copy;
    if the copy has it, the fix is `railwright enable`. Without the ValidatingWebhookConfiguration an invalid
    policy can be stored; the servers still do not use it.

    - With a wider selector or fewer match conditions, other pods depend on the webhook; with a narrower one, opted-in
      pods bypass it.
    - A mutating entry that does not exclude `kube-system` and the webhook's own namespace blocks the webhook's pods or
      those of the network plugin while the webhook is down.
    - Without `reinvocationPolicy: IfNeeded`, railwright misses later changes by other webhooks.
    - `failurePolicy: Ignore` lets opted-in pods run over TCP unnoticed while the webhook is down. With `Fail`
      where `Ignore` is expected, it then also blocks objects that did not opt in.
    - Each time a pod is created, the API server waits up to `timeoutSeconds` for a webhook that hangs.

    Warns about a copy that is still there beside the webhooks: the next `disable` would keep the older objects in it.
    Warns about entries that this release does not have, usually left by another release.
    """
    for source in ("mutating", "validating"):
        if snapshot.find(source, CONFIGURATION) is None:
            if snapshot.is_disabled:
                return fail(*rows.describe_disabled(snapshot))
            missing = f"{source.capitalize()}WebhookConfiguration {CONFIGURATION} does not exist"
            return fail(f"{missing}: the API server does not call the webhook")
    installed = {str(hook.get("name")): hook for hook in snapshot.hooks}
    expected = read_expected()
    if absent := [name for name in expected if name not in installed]:
        return fail(f"missing: {', '.join(absent)}")
    problems = [
        (state, f"{name}: {problem}", fix)
        for name, shipped in expected.items()
        for state, problem, fix in _compare(installed[name], shipped)
    ]
    for state in (State.FAIL, State.WARN):
        if found := [problem for problem in problems if problem[0] is state]:
            return Assessment(state, text.join_first([sentence for _, sentence, _ in found], 3), found[0][2])
    if snapshot.has_copy:
        return warn(rows.COPY_LEFT, rows.ENABLE)
    if unexpected := sorted(installed.keys() - expected.keys()):
        return warn(f"entries that this release does not have: {', '.join(unexpected)}")
    return ok(text.format_count(len(installed), "entry"))


def _compare(hook: _Hook, expected: _Hook) -> Iterator[tuple[State, str, str]]:
    """Yield the differences of an entry from the release: state, problem, and fix ("" for the row's fix)."""
    installed = _list_fields(hook)
    for field, shipped in _list_fields(expected).items():
        missing = sorted(shipped - installed[field])
        if missing and field in ("rules", "matchConditions"):
            yield State.FAIL, f"its {field} lack {text.join_first(missing, 3)}", ""
        elif field not in ("rules", "matchConditions") and installed[field] != shipped:
            actual, wanted = (" and ".join(sorted(values)) or "empty" for values in (installed[field], shipped))
            yield State.FAIL, f"{field} is {actual}, expected {wanted}", ""
    called = {"kube-system", NAMESPACE} - list_namespaces(hook, "NotIn")
    called &= list_namespaces(hook, "In") or called
    if called and list_namespaces(expected, "NotIn"):
        exclusion = f"{{key: {NAME_LABEL}, operator: NotIn, values: [kube-system, {NAMESPACE}]}}"
        problem = f"does not exclude namespace {' and '.join(sorted(called))}"
        yield State.FAIL, problem, f"add {exclusion} to its namespaceSelector: {_EDIT}"
    failure, shipped_failure = hook.get("failurePolicy", "Fail"), expected["failurePolicy"]
    if failure != shipped_failure:
        fix = f"apply the entry again: {{apply webhook.failurePolicy=Fail}}; or {_EDIT}"
        yield State.WARN, f"failurePolicy is {failure}, expected {shipped_failure}", fix
    seconds, fewest = int(hook.get("timeoutSeconds") or _MAX_SECONDS), expected["timeoutSeconds"]
    if not fewest <= seconds <= _MAX_SECONDS:
        yield State.WARN, f"timeoutSeconds is {seconds}, expected {fewest} to {_MAX_SECONDS}", ""


def _list_fields(hook: _Hook) -> Mapping[str, set[str]]:
    """Return what has to be as in the release, without namespaces that are selected by name."""
    service, url = get_map(hook, "clientConfig", "service"), get_path(hook, "clientConfig", "url")
    return {
        "Service": {f"{NAMESPACE}/{WEBHOOK}" if url else f"{service.get('namespace')}/{service.get('name')}"},
        "path": {urllib.parse.urlsplit(url).path if url else service.get("path") or "/"},
        "reinvocationPolicy": {hook.get("reinvocationPolicy", "Never")},
        "matchConditions": {condition.get("name") for condition in get_list(hook, "matchConditions")},
        "rules": {
            f"{operation} {group and f'{group}/'}{resource}"
            for rule in get_list(hook, "rules")
            for operation in get_list(rule, "operations")
            for group in get_list(rule, "apiGroups")
            for resource in get_list(rule, "resources")
        },
        **{
            key: {" ".join((name, operator, *values)) for name, operator, values in expressions if name != NAME_LABEL}
            for key in ("objectSelector", "namespaceSelector")
            for expressions in (read_selector(hook.get(key)),)
        },
    }


_CONFIGMAP = f"ConfigMap {POLICY}"
_ENFORCE = f"set `mode: enforce`, or remove the key: {rows.EDIT_POLICY}"
_MAX_ERRORS = 20  # errors printed; a user with more fixes these first


@row(rows.CREATE_POLICY)
def check_policy(snapshot: Snapshot) -> Assessment:
    """Policy exists, is valid and is enforced.

    You create ConfigMap `railwright-policy` with the key `policy.yaml`; no installation method includes one. Without it
    no server becomes ready, and opted-in pods are rejected. Servers never use an invalid policy: they keep the last
    valid one. Servers that restart read it from ConfigMap `railwright-last-policy`. Warns in mode `warn`.
    """
    configmap, result = snapshot.find("policy"), snapshot.policy_result
    if configmap is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {NAMESPACE}")
    if result is None:
        keys = text.join_first(configmap.get("data") or (), 5) or "nothing"
        missing = f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}"
        return fail(missing, f"store the policy under this key: {rows.EDIT_POLICY}")
    if isinstance(result, policies.Rejected):
        validate = f"{rows.EDIT_POLICY}; to validate it first: railwright policy validate FILE"
        return fail("\n".join(map(str, result.errors[:_MAX_ERRORS])), validate)
    if not result.document.is_enforced:
        return warn("it is in mode warn: opted-in pods are admitted unchanged, with a warning", _ENFORCE)
    fabrics = snapshot.fabrics
    return ok(f"{_CONFIGMAP}, {text.format_count(len(fabrics), 'fabric')}: {text.join_first(fabrics, 5)}")


@row("apply the ValidatingAdmissionPolicies and their bindings again: {apply admissionPolicy.mode=Deny}")
def check_admission_policy(snapshot: Snapshot) -> Assessment:
    """Pods that bypass the webhook are rejected.

    The ValidatingAdmissionPolicies that reject opted-in pods without an injection record are bound with `Deny`. An
    installation may leave them out (`admissionPolicy.mode: Off`).

    Fails if they are bound with `Deny` while the policy is in mode `warn`: opted-in pods have no injection record then.
    Instead of the chart's value, the label `railwright.io/uninjected: warn` lets the pods of one namespace pass.
    """
    listed = {str(get_path(policy, "metadata", "name")): policy for policy in snapshot.get_all("admission-policies")}
    own = {name: policy for name, policy in listed.items() if _is_ours(name, policy)}
    if not own:
        return skip(
            "no ValidatingAdmissionPolicy of railwright (chart value admissionPolicy.mode): labelled pods run without "
            "their network while webhooks are removed or set to `failurePolicy: Ignore`"
        )
    actions: dict[str, set[str]] = {}  # of each policy that has a binding
    for binding in snapshot.get_all("admission-bindings"):
        policy_actions = actions.setdefault(str(get_path(binding, "spec", "policyName")), set())
        policy_actions.update(get_list(binding, "spec", "validationActions"))
    if snapshot.policy and not snapshot.policy.is_enforced:
        if any("Deny" in actions.get(name, ()) for name in own):
            return fail(
                "the admission policies deny opted-in pods, because mode warn adds no record",
                f"{_ENFORCE}. Until then let opted-in pods pass: {{apply admissionPolicy.mode=Warn}}",
            )
        return ok("they let opted-in pods pass, as mode warn requires")
    unbound = text.join_first((name for name in own if name not in actions), 5)
    if unbound and snapshot.has_copy:
        return fail(*(rows.describe_disabled(snapshot) if snapshot.is_disabled else (rows.COPY_LEFT, rows.ENABLE)))
    if unbound:
        return fail(f"{unbound} has no ValidatingAdmissionPolicyBinding, so it has no effect")
    if without_deny := text.join_first((name for name in own if "Deny" not in actions[name]), 5):
        return warn(f"{without_deny} is bound without Deny: the pods it reports still run")
    return ok(text.join_first(own, 5))


def _is_ours(name: str, policy: Any) -> bool:
    is_labelled = get_map(policy, "metadata", "labels").get("app.kubernetes.io/part-of") == "railwright"
    return is_labelled or name.startswith("railwright") or name.endswith(names.DOMAIN)
