"""Rows about the webhook configurations: compares the fields whose drift breaks admission with those of the release.

`webhook_entries.json` has the entries of manifests/base/admission.yaml. Match conditions are compared by name, because
their text is CEL. Deliberate differences (a URL instead of a Service, more excluded namespaces) are accepted.
"""

import functools
import importlib.resources
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli.checking import snapshots
from railwright.cli.checking.rows import Assessment, fail, ok, require, row, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_path
from railwright.cluster import installed_names
from railwright.fabric import text

GROUP = "webhook configurations"

_MAX_SECONDS = 10  # the API's default of timeoutSeconds; railwright answers faster
_Hook = Mapping[str, Any]  # an entry of a webhook configuration


@functools.cache
def read_expected() -> Mapping[str, _Hook]:
    """Return the entries of this release by name."""
    data = importlib.resources.files("railwright.cli.checking").joinpath("webhook_entries.json").read_bytes()
    return {hook["name"]: hook for hook in msgspec.json.decode(data)}


def find_excluded_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the namespaces whose new pods are not sent to the webhook."""
    own = next((hook for hook in snapshot.hooks if hook.get("name") == "pods.railwright.io"), {})
    return _list_names(own, "NotIn") | {"kube-system", installed_names.NAMESPACE, snapshot.namespace}


@row("{apply}, then: railwright certs rotate", reads="mutating validating")
def check_entries_complete(snapshot: Snapshot) -> Assessment:
    """Webhook configurations exist with all entries.

    The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration `railwright` exist, with every entry. The
    entries are those of `manifests/base/admission.yaml`. Without the first configuration the API server does not call
    the webhook: the admission policy rejects labelled pods, or they run over TCP. `railwright disable` deletes it and
    keeps a copy; while the copy is there, the fix is `railwright enable`. Without the second an invalid policy can be
    stored; the servers still do not use it.

    Warns about entries that this release does not have, usually left by another release.
    """
    for source in ("mutating", "validating"):
        if snapshot.find(source, snapshots.CONFIGURATION) is None:
            if snapshot.is_disabled:
                return fail(snapshots.DISABLED, snapshots.ENABLE)
            missing = f"{source.capitalize()}WebhookConfiguration {snapshots.CONFIGURATION} does not exist"
            return fail(f"{missing}: the API server does not call the webhook")
    installed = {str(hook.get("name")) for hook in snapshot.hooks}
    if absent := [name for name in read_expected() if name not in installed]:
        return fail(f"missing: {', '.join(absent)}")
    if unexpected := sorted(installed - read_expected().keys()):
        return warn(f"entries that this release does not have: {', '.join(unexpected)}")
    return ok(text.format_count(len(installed), "entry"))


@row(
    "apply the entry again: {apply}; or kubectl edit mutatingwebhookconfiguration {configuration}",
    reads="mutating validating",
    after="entries-complete",
)
def check_entries_match(snapshot: Snapshot) -> Assessment:
    """Each webhook entry is that of this release.

    Compares each entry with `manifests/base/admission.yaml`:

    - `clientConfig`: it calls the Service `railwright-webhook`, and the path of the entry. A URL is allowed.
    - `rules`: no resource or operation is missing. More are allowed.
    - `objectSelector`, `namespaceSelector` and match conditions are equal, except for namespaces excluded or selected
      by name. With a wider selector, other pods depend on the webhook; with a narrower one, opted-in pods bypass it.
    - A mutating entry excludes `kube-system` and the webhook's own namespace. Otherwise, while the webhook is down, it
      blocks its own pods or those of the network plugin from starting.
    - `reinvocationPolicy` is `IfNeeded`. Fails if other webhooks change pods later (they run in the order of their
      configurations' names), otherwise warns.
    - `failurePolicy`: warns if it is `Ignore` for opted-in pods, which would run over TCP unnoticed, or `Fail` for
      requests that must not be blocked.
    - `timeoutSeconds`: warns if it is above 10, which delays every pod while the webhook hangs, or below the
      manifest's.
    """
    own = [hook for hook in snapshot.hooks if hook.get("name") in read_expected()]
    require(own, "railwright has no entry in the webhook configurations")
    later = text.join_first(sorted(_list_later_webhooks(snapshot)), 5)
    edit = "kubectl edit mutatingwebhookconfiguration {configuration}"
    exclusion = f"{{key: {snapshots.NAME_LABEL}, operator: NotIn, values: [kube-system, {snapshot.namespace}]}}"
    for bad, compare, fix in (
        (fail, _compare_target, ""),
        (fail, _compare_rules, ""),
        (fail, _compare_selectors, ""),
        (fail, _compare_exclusions, f"add {exclusion} to its namespaceSelector: {edit}"),
        (fail if later else warn, functools.partial(_compare_reinvocation, later=later), ""),
        (warn, _compare_failure_policy, f"apply the entry again: {{apply webhook.failurePolicy=Fail}}; or {edit}"),
        (warn, _compare_timeout, ""),
    ):
        found = ((hook["name"], compare(hook, read_expected()[hook["name"]], snapshot.namespace)) for hook in own)
        if problems := [f"{name}: {problem}" for name, problem in found if problem]:
            return bad(text.join_first(problems, 3), fix)
    return ok(text.format_count(len(own), "entry"))


def _compare_target(hook: _Hook, expected: _Hook, namespace: str) -> str:
    service, url = get_map(hook, "clientConfig", "service"), get_path(hook, "clientConfig", "url")
    actual, own = f"{service.get('namespace')}/{service.get('name')}", f"{namespace}/{snapshots.WEBHOOK}"
    if not url and actual != own:
        return f"calls Service {actual}, not {own}"
    path = urllib.parse.urlsplit(url).path if url else service.get("path") or "/"
    own_path = expected["clientConfig"]["service"]["path"]
    return "" if path == own_path else f"calls path {path}, not {own_path}"


def _compare_rules(hook: _Hook, expected: _Hook, _namespace: str) -> str:
    missing = sorted(call.replace(" /", " ") for call in {*_list_calls(expected)} - {*_list_calls(hook)})
    return f"is not called for {text.join_first(missing, 3)}" if missing else ""


def _compare_selectors(hook: _Hook, expected: _Hook, _namespace: str) -> str:
    for key in ("objectSelector", "namespaceSelector"):
        actual, own = (
            [item for item in snapshots.read_selector(tree.get(key)) if item[0] != snapshots.NAME_LABEL]
            for tree in (hook, expected)
        )
        if {*actual} != {*own}:
            formatted = [snapshots.format_selector(expressions) or "empty" for expressions in (actual, own)]
            return f"{key} is {formatted[0]}, expected {formatted[1]}"
    conditions = [{item.get("name") for item in get_list(tree, "matchConditions")} for tree in (expected, hook)]
    missing = sorted(conditions[0] - conditions[1])
    return f"lacks the match condition {', '.join(missing)}" if missing else ""


def _compare_exclusions(hook: _Hook, expected: _Hook, namespace: str) -> str:
    called = {"kube-system", namespace} - _list_names(hook, "NotIn")
    missing = sorted(called & (_list_names(hook, "In") or called)) if _list_names(expected, "NotIn") else []
    return f"does not exclude namespace {' and '.join(missing)}" if missing else ""


def _compare_reinvocation(hook: _Hook, expected: _Hook, _namespace: str, *, later: str) -> str:
    if hook.get("reinvocationPolicy") == "IfNeeded" or expected.get("reinvocationPolicy") != "IfNeeded":
        return ""
    return f"reinvocationPolicy is not IfNeeded, so changes by {later or 'later webhooks'} are missed"


def _compare_failure_policy(hook: _Hook, expected: _Hook, _namespace: str) -> str:
    actual, own = hook.get("failurePolicy", "Fail"), expected["failurePolicy"]
    if own == actual:
        return ""
    if own == "Fail":
        return "failurePolicy Ignore: while the webhook is down, training pods run without their network"
    return "failurePolicy Fail, expected Ignore: while the webhook is down, it also blocks pods that did not opt in"


def _compare_timeout(hook: _Hook, expected: _Hook, _namespace: str) -> str:
    seconds = int(hook.get("timeoutSeconds") or _MAX_SECONDS)
    if seconds < expected["timeoutSeconds"]:
        return f"timeoutSeconds {seconds}, expected {expected['timeoutSeconds']}"
    too_long = f"timeoutSeconds {seconds}: a hanging webhook delays every pod by {seconds} s"
    return too_long if seconds > _MAX_SECONDS else ""


def _list_calls(hook: _Hook) -> Iterator[str]:
    """Yield each OPERATION GROUP/RESOURCE of an entry's rules. Wildcards are expanded for pods only."""
    for rule in get_list(hook, "rules"):
        groups, resources, operations = (get_list(rule, key) for key in ("apiGroups", "resources", "operations"))
        called = [f"{group}/{resource}" for group in groups for resource in resources]
        if {"*", ""} & {*groups} and {"*", "*/*"} & {*resources}:
            called.append("/pods")
        for operation in ("CREATE", "UPDATE"):
            if operation in operations or "*" in operations:
                yield from (f"{operation} {resource}" for resource in called)


def _list_names(hook: _Hook, operator: str) -> frozenset[str]:
    """Return the names of namespaces that an entry's namespaceSelector excludes (NotIn) or requires (In)."""
    expressions = snapshots.read_selector(hook.get("namespaceSelector"))
    return frozenset(
        name
        for key, own_operator, values in expressions
        if (key, own_operator) == (snapshots.NAME_LABEL, operator)
        for name in values
    )


def _list_later_webhooks(snapshot: Snapshot) -> Iterator[str]:
    """Yield CONFIGURATION/NAME of the mutating webhooks that are called for new pods after railwright's."""
    for configuration in snapshot.get_all("mutating"):
        name = str(get_path(configuration, "metadata", "name"))
        if name > snapshots.CONFIGURATION:
            hooks = get_list(configuration, "webhooks")
            yield from (f"{name}/{hook.get('name')}" for hook in hooks if "CREATE /pods" in _list_calls(hook))
