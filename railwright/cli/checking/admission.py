"""Checks of admission: the webhook configurations, the policy, and the ValidatingAdmissionPolicies."""

import functools
import importlib.resources
import json
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Result, fail, ok, row, skip, warn
from railwright.cli.checking.snapshots import (
    NAME_LABEL,
    Snapshot,
    get_list,
    get_map,
    get_value,
    list_excluded_namespaces,
    read_selector,
)
from railwright.cluster import policies
from railwright.cluster.installed_names import DISABLED, INSTALLATION, NAMESPACE, POLICY, WEBHOOK
from railwright.fabric import names, text

GROUP = "admission"

_WEBHOOKS = "MutatingWebhookConfiguration"  # also in the copy, unless it was deleted before `railwright disable`
_ENABLE = "railwright enable"
_COPY_LEFT = (
    f"ConfigMap {DISABLED} of `railwright disable` still exists: the command stopped halfway, or an upgrade enabled "
    "railwright again"
)
_APPLY = "apply the webhook configurations again: {apply}; then, for the caBundle: railwright certs rotate"
_EDIT = f"kubectl edit mutatingwebhookconfiguration {INSTALLATION}"
_MAX_SECONDS = 10  # the API's default of timeoutSeconds; railwright answers faster
_Hook = Mapping[str, Any]  # an entry of a webhook configuration


@functools.cache
def read_shipped_entries() -> Mapping[str, _Hook]:
    """Return the webhook entries that this release ships, by name, with the names of this installation."""
    content = importlib.resources.files("railwright.cli.checking").joinpath("webhook_entries.json").read_text()
    content = content.replace(f'"{names.NAMESPACE}"', f'"{NAMESPACE}"').replace('"railwright-webhook"', f'"{WEBHOOK}"')
    return {hook["name"]: hook for hook in json.loads(content)}


@row(_APPLY)
def check_webhook_entries(snapshot: Snapshot) -> Result:
    """Webhook configurations exist, and their entries are those of this release.

    Compares each entry with `manifests/base/admission.yaml`. A URL, more rules, and more namespaces that are excluded
    or selected by name are allowed. Without the MutatingWebhookConfiguration the API server does not call the webhook:
    the admission policy rejects labelled pods, or they run over TCP. `railwright disable` deletes it and keeps a copy
    in a ConfigMap; `railwright enable` restores it. Without the ValidatingWebhookConfiguration an invalid policy can be
    stored; the servers still do not use it.

    - With a wider selector or fewer match conditions, other pods depend on the webhook; with a narrower one, opted-in
      pods bypass it.
    - A mutating entry that does not exclude `kube-system` and the webhook's own namespace blocks the webhook's pods or
      those of the network plugin while the webhook is down.
    - Without `reinvocationPolicy: IfNeeded`, railwright misses later changes by other webhooks.
    - `failurePolicy: Ignore` lets opted-in pods run over TCP unnoticed while the webhook is down. With `Fail`
      where `Ignore` is expected, it then also blocks objects that did not opt in.
    - Each time a pod is created, the API server waits up to `timeoutSeconds` for a webhook that hangs.

    Warns if the copy of `disable` still exists beside the webhooks: the next `disable` would keep its older objects.
    Warns about entries that this release does not have, usually left by another release.
    """
    copy = snapshot.get_readable_objects("disabled")
    for source in ("mutating", "validating"):
        if snapshot.find_object(source, INSTALLATION) is None:
            missing = f"{source.capitalize()}WebhookConfiguration {INSTALLATION} does not exist"
            if source == "mutating" and any(_WEBHOOKS in str(get_value(item, "data")) for item in copy):
                return fail(
                    f"{missing}: railwright is disabled, and ConfigMap {DISABLED} has the deleted configurations",
                    _ENABLE,
                )
            return fail(f"{missing}: the API server does not call the webhook", lasting=False)
    installed = {str(hook.get("name")): hook for hook in snapshot.webhook_entries}
    expected = read_shipped_entries()
    if absent := [name for name in expected if name not in installed]:
        return fail(f"missing: {', '.join(absent)}")
    pairs = [(name, installed[name], shipped) for name, shipped in expected.items()]
    if different := [
        f"{name}: {problem}" for name, hook, shipped in pairs for problem in _find_entry_differences(hook, shipped)
    ]:
        return fail(text.join_first(different, 3))
    if unusual := [
        f"{name}: {problem}" for name, hook, shipped in pairs for problem in _find_call_differences(hook, shipped)
    ]:
        fix = f"apply the entries again: {{apply webhook.failurePolicy=Fail}}; or {_EDIT}"
        return warn(text.join_first(unusual, 3), fix)
    if copy:
        return warn(_COPY_LEFT, _ENABLE)
    if unexpected := sorted(installed.keys() - expected.keys()):
        return warn(f"the webhook configurations have entries that this release does not ship: {', '.join(unexpected)}")
    return ok(text.format_count(len(installed), "entry"))


def _find_entry_differences(hook: _Hook, expected: _Hook) -> Iterator[str]:
    """Yield text about each field by which an installed entry has another effect than the shipped one."""
    installed = _read_compared_fields(hook)
    for field, shipped in _read_compared_fields(expected).items():
        if field in ("rules", "matchConditions", "excluded namespaces"):
            if missing := sorted(shipped - installed[field]):
                yield f"its {field} lack {text.join_first(missing, 3)}"
        elif installed[field] != shipped:
            actual, wanted = (" and ".join(sorted(values)) or "empty" for values in (installed[field], shipped))
            yield f"{field} is {actual}, expected {wanted}"


def _find_call_differences(hook: _Hook, expected: _Hook) -> Iterator[str]:
    """Yield text about the failurePolicy and the timeoutSeconds of an installed entry, if they are not as shipped."""
    failure, shipped_failure = hook.get("failurePolicy", "Fail"), expected["failurePolicy"]
    if failure != shipped_failure:
        yield f"failurePolicy is {failure}, expected {shipped_failure}"
    seconds, fewest = int(hook.get("timeoutSeconds") or _MAX_SECONDS), expected["timeoutSeconds"]
    if not fewest <= seconds <= _MAX_SECONDS:
        yield f"timeoutSeconds is {seconds}, expected {fewest} to {_MAX_SECONDS}"


def _read_compared_fields(hook: _Hook) -> Mapping[str, set[str]]:
    """Return the compared fields of an entry as sets of texts, without namespaces that it selects by name."""
    service, url = get_map(hook, "clientConfig", "service"), get_value(hook, "clientConfig", "url")
    selected = {
        selector: {
            " ".join((key, operator, *values))
            for key, operator, values in read_selector(hook.get(selector))
            if key != NAME_LABEL
        }
        for selector in ("objectSelector", "namespaceSelector")
    }
    return {
        "Service": {f"{NAMESPACE}/{WEBHOOK}" if url else f"{service.get('namespace')}/{service.get('name')}"},
        "path": {urllib.parse.urlsplit(url).path if url else service.get("path") or "/"},
        "reinvocationPolicy": {hook.get("reinvocationPolicy", "Never")},
        "matchConditions": {condition.get("name") for condition in get_list(hook, "matchConditions")},
        "rules": {
            f"{operation} {group and f'{group}/'}{resource}"
            for rule in get_list(hook, "rules")
            for operation in rule["operations"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        },
        **selected,
        "excluded namespaces": list_excluded_namespaces(hook),
    }


_CONFIGMAP = f"ConfigMap {POLICY}"
_ENFORCE = f"set `mode: enforce`, or remove the key `mode`: {rows.EDIT_POLICY}"
_MAX_ERRORS = 20  # errors printed; a user with more fixes these first


@row(rows.CREATE_POLICY)
def check_policy(snapshot: Snapshot) -> Result:
    """Policy exists, is valid and is enforced.

    You create ConfigMap `railwright-policy` with the key `policy.yaml`; no installation method includes one. Without it
    no server becomes ready, and opted-in pods are rejected. Servers never use an invalid policy: they keep the last
    valid one. Servers that restart read it from ConfigMap `railwright-last-policy`. Warns in mode `warn`.
    """
    configmap, result = snapshot.find_object("policy"), snapshot.policy_result
    if configmap is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {NAMESPACE}", lasting=False)
    if result is None:
        keys = text.join_first(configmap.get("data") or (), 5) or "nothing"
        missing = f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}"
        return fail(missing, f"store the policy under this key: {rows.EDIT_POLICY}")
    if isinstance(result, policies.RejectedPolicy):
        validate = (
            "correct the policy in a file, validate it (railwright policy validate FILE), then put it into the "
            f"ConfigMap: {rows.EDIT_POLICY}"
        )
        return fail("\n".join(map(str, result.errors[:_MAX_ERRORS])), validate)
    if not result.document.is_enforced:
        return warn("the policy is in mode warn: opted-in pods are admitted unchanged, with a warning", _ENFORCE)
    fabrics = snapshot.fabrics
    return ok(f"{_CONFIGMAP}, {text.format_count(len(fabrics), 'fabric')}: {text.join_first(fabrics, 5)}")


@row("apply the ValidatingAdmissionPolicies and their bindings again: {apply admissionPolicy.mode=Deny}")
def check_admission_policy(snapshot: Snapshot) -> Result:
    """Pods that bypass the webhook are rejected.

    The ValidatingAdmissionPolicies that reject opted-in pods without an injection record are bound with `Deny`. An
    installation may leave them out (`admissionPolicy.mode: Off`).

    Fails if they are bound with `Deny` while the policy is in mode `warn`: opted-in pods have no injection record then.
    To let the pods of only one namespace pass, set its label `railwright.io/uninjected: warn`.
    """
    listed = [item["metadata"]["name"] for item in snapshot.get_objects("admission-policies")]
    own = [name for name in listed if name.startswith(f"{INSTALLATION}-")]
    if not own:
        return skip(
            "no ValidatingAdmissionPolicy of railwright (chart value admissionPolicy.mode): labelled pods run without "
            "their network while webhooks are removed or set to `failurePolicy: Ignore`"
        )
    actions: dict[str, set[str]] = defaultdict(set)  # of each policy that has a binding
    for binding in snapshot.get_objects("admission-bindings"):
        actions[binding["spec"]["policyName"]].update(binding["spec"]["validationActions"])
    if snapshot.policy and not snapshot.policy.is_enforced:
        if any("Deny" in actions[name] for name in own):
            return fail(
                "the admission policies deny opted-in pods, because mode warn adds no record",
                f"{_ENFORCE}. Until then let opted-in pods pass: {{apply admissionPolicy.mode=Warn}}",
            )
        return ok("the admission policies let opted-in pods pass, because the policy is in mode warn")
    if unbound := text.join_first((name for name in own if not actions[name]), 5):
        fix = _ENABLE if snapshot.get_readable_objects("disabled") else ""
        return fail(f"{unbound} has no ValidatingAdmissionPolicyBinding, so it has no effect", fix, lasting=bool(fix))
    if without_deny := text.join_first((name for name in own if "Deny" not in actions[name]), 5):
        return warn(f"{without_deny} is bound without Deny, so it does not reject the pods that it reports")
    return ok(text.join_first(own, 5))
