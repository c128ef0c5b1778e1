"""Checks of the webhook configurations: compares the installed entries with those that `expected_entries` lists.

Deliberate differences (a URL instead of a Service, more excluded namespaces) are accepted.
"""

import collections
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from railwright.cli.checking import check_rows, expected_entries, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.fabric import text

_MAX_SECONDS = 10  # the API's default of timeoutSeconds; railwright answers faster
_MAX_TOTAL_SECONDS = 30  # of all webhooks on a pod; kube-apiserver ends a request after 60 (--request-timeout)
_KINDS = {"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}


def find_excluded_namespaces(snapshot: snapshots.ClusterSnapshot) -> frozenset[str]:
    """Return the names of the namespaces whose new pods are not sent to the webhook."""
    pods = next((hook for hook in snapshot.hooks if hook.get("name") == expected_entries.PODS), {})
    named = (
        item for item in _parse_expressions(pods.get("namespaceSelector")) if item[0] == expected_entries.NAME_LABEL
    )
    excluded = {value for _, operator, values in named if operator == "NotIn" for value in values}
    return frozenset({*expected_entries.EXCLUDED, snapshot.namespace, *excluded})


def _check_exists(source: str) -> check_rows.Assess:
    def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        configuration = snapshot.find(source, snapshots.CONFIGURATION)
        if configuration is None and source == "mutating" and snapshot.is_disabled:
            return fail(check_rows.DISABLED, check_rows.ENABLE)
        if configuration is None:
            return fail(
                f"{_KINDS[source]} {snapshots.CONFIGURATION} does not exist: the API server does not call the webhook"
            )
        return ok(text.format_count(len(snapshots.get_list(configuration, "webhooks")), "entry"))

    return assess


def _check_complete(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    installed = {str(hook.get("name")) for hook in snapshot.hooks}
    missing = [name for name in expected_entries.ENTRIES if name not in installed]
    if missing:
        return fail(f"missing: {', '.join(missing)}")
    unexpected = sorted(installed - set(expected_entries.ENTRIES))
    if unexpected:
        return warn(f"entries that this release does not have: {', '.join(unexpected)}")
    return ok(text.format_count(len(installed), "entry"))


def _check_entries(
    problem: Callable[[Mapping[str, Any], expected_entries.Entry, str], str],
    detail: str = "",
    *,
    warn_only: bool = False,
) -> check_rows.Assess:
    """Return a check that applies `problem` to all entries. `problem` returns "" or what is wrong with an entry."""

    def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        entries = [
            (hook, expected_entries.ENTRIES[hook["name"]])
            for hook in snapshot.hooks
            if hook.get("name") in expected_entries.ENTRIES
        ]
        if not entries:
            return skip("railwright has no entry in the webhook configurations")
        problems = [
            f"{hook['name']}: {text}" for hook, entry in entries if (text := problem(hook, entry, snapshot.namespace))
        ]
        if not problems:
            return ok(detail)
        return (warn if warn_only else fail)(snapshots.join_limited(problems, 3))

    return assess


def _find_target_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, namespace: str) -> str:
    service, url = snapshots.get_path(hook, "clientConfig", "service"), snapshots.get_path(hook, "clientConfig", "url")
    path = urllib.parse.urlsplit(url).path if url else snapshots.get_path(service, "path") or "/"
    target = f"{snapshots.get_path(service, 'namespace')}/{snapshots.get_path(service, 'name')}"
    if not url and target != f"{namespace}/{snapshots.WEBHOOK}":
        return f"calls Service {target}, not {namespace}/{snapshots.WEBHOOK}"
    return "" if path == entry.path else f"calls path {path}, not {entry.path}"


def _find_rule_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, _namespace: str) -> str:
    called = _list_called(hook)
    missing = sorted(f"{operation} {resource.lstrip('/')}" for resource, operation in entry.resources - called)
    return f"is not called for {snapshots.join_limited(missing, 3)}" if missing else ""


def _find_selector_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, _namespace: str) -> str:
    objects = _parse_expressions(hook.get("objectSelector"))
    if set(objects) != set(entry.objects):
        return f"objectSelector is {_format_expressions(objects)}, expected {_format_expressions(entry.objects)}"
    namespaces = [
        item for item in _parse_expressions(hook.get("namespaceSelector")) if item[0] != expected_entries.NAME_LABEL
    ]
    if set(namespaces) != set(entry.namespaces):
        return (
            f"namespaceSelector is {_format_expressions(namespaces)}, expected {_format_expressions(entry.namespaces)}"
        )
    conditions = {str(condition.get("name")) for condition in hook.get("matchConditions") or ()}
    if not conditions >= set(entry.conditions):
        return f"lacks the match condition {', '.join(sorted(set(entry.conditions) - conditions))}"
    return ""


def _find_exclusion_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, namespace: str) -> str:
    if not entry.mutating:
        return ""
    named = [
        item for item in _parse_expressions(hook.get("namespaceSelector")) if item[0] == expected_entries.NAME_LABEL
    ]
    excluded = {value for _, operator, values in named if operator == "NotIn" for value in values}
    included = [set(values) for _, operator, values in named if operator == "In"]
    expected = {"kube-system", namespace}
    missing = sorted(name for name in expected - excluded if not included or all(name in values for values in included))
    return f"does not exclude namespace {' and '.join(missing)}" if missing else ""


def _find_failure_policy_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, _namespace: str) -> str:
    failure_policy = hook.get("failurePolicy", "Fail")
    if entry.closed and failure_policy != "Fail":
        return "failurePolicy Ignore: while the webhook is down, training pods run without their network"
    if not entry.closed and failure_policy == "Fail":
        return "failurePolicy Fail, expected Ignore: while the webhook is down, it also blocks pods that did not opt in"
    return ""


def _find_timeout_problem(hook: Mapping[str, Any], entry: expected_entries.Entry, _namespace: str) -> str:
    seconds = int(hook.get("timeoutSeconds") or _MAX_SECONDS)
    if seconds < entry.seconds:
        return f"timeoutSeconds {seconds}, expected {entry.seconds}"
    return (
        f"timeoutSeconds {seconds}: a hanging webhook delays every pod by {seconds} s" if seconds > _MAX_SECONDS else ""
    )


def _check_timeouts(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    assessment = _check_entries(_find_timeout_problem, warn_only=True)(snapshot)
    if not isinstance(assessment, check_rows.Assessment) or assessment.state is not check_rows.State.OK:
        return assessment  # type: ignore[return-value]  # _check_entries returns one assessment
    others = dict(_list_other_webhooks(snapshot))
    total = max(map(_get_timeout, snapshot.hooks)) + _sum_timeouts(others.values())
    if total > _MAX_TOTAL_SECONDS:
        return warn(
            f"the timeouts of all webhooks on a pod add up to {total} s ({snapshots.join_limited(others)}); "
            "the API server may end the request first",
            "lower timeoutSeconds of the other webhooks: kubectl edit mutatingwebhookconfiguration NAME",
        )
    return ok(f"at most {total} s for a pod, including {text.format_count(len(others), 'other webhook')}")


def _get_timeout(hook: Mapping[str, Any]) -> int:
    return int(hook.get("timeoutSeconds") or _MAX_SECONDS)


def _sum_timeouts(hooks: Iterable[Mapping[str, Any]]) -> int:
    """Return the most seconds that these webhooks may take for one pod.

    A webhook whose objectSelector requires labels is called for the pods of one framework: JobSet's never for those
    of LeaderWorkerSet.
    """
    by_labels: collections.Counter[frozenset[str]] = collections.Counter()
    for hook in hooks:
        expressions = _parse_expressions(hook.get("objectSelector"))
        by_labels[frozenset(key for key, operator, _ in expressions if operator in ("In", "Exists"))] += _get_timeout(
            hook
        )
    of_all_pods = by_labels.pop(frozenset(), 0)
    return of_all_pods + max(by_labels.values(), default=0)


def _check_order(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    later = sorted(
        {name for name, _ in _list_other_webhooks(snapshot) if name.partition("/")[0] > snapshots.CONFIGURATION}
    )
    not_reinvoked = [
        hook["name"]
        for hook in snapshot.hooks
        if hook.get("name") in expected_entries.ENTRIES
        and expected_entries.ENTRIES[hook["name"]].reinvoked
        and hook.get("reinvocationPolicy") != "IfNeeded"
    ]
    if not_reinvoked and later:
        return fail(
            f"{snapshots.join_limited(later)} change pods after railwright, and "
            f"{snapshots.join_limited(not_reinvoked)} are not called again"
        )
    if not_reinvoked:
        return warn(
            f"{snapshots.join_limited(not_reinvoked)}: reinvocationPolicy is not IfNeeded, so changes by "
            "later webhooks are missed"
        )
    if later:
        return ok(f"called again after {snapshots.join_limited(later)}")
    return ok("no other webhook changes pods later")


def _list_other_webhooks(snapshot: snapshots.ClusterSnapshot) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the foreign mutating webhooks that are called for new pods, as CONFIGURATION/NAME and entry."""
    for configuration in snapshot.get_all("mutating"):
        name = str(snapshots.get_path(configuration, "metadata", "name"))
        if name != snapshots.CONFIGURATION:
            for hook in snapshots.get_list(configuration, "webhooks"):
                if ("/pods", "CREATE") in _list_called(hook):
                    yield f"{name}/{hook.get('name')}", hook


def _list_called(hook: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the pairs of GROUP/RESOURCE and operation in an entry's rules. Wildcards are expanded for pods only."""
    called: set[tuple[str, str]] = set()
    for rule in hook.get("rules") or ():
        groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
        operations = rule.get("operations") or ()
        expanded = [operation for operation in ("CREATE", "UPDATE") if operation in operations or "*" in operations]
        if ("*" in groups or "" in groups) and ("*" in resources or "*/*" in resources):
            called |= {("/pods", operation) for operation in expanded}
        called |= {
            (f"{group}/{resource}", operation) for group in groups for resource in resources for operation in expanded
        }
    return frozenset(called)


def _parse_expressions(selector: Any) -> list[expected_entries.Expression]:
    labels = snapshots.get_map(selector, "matchLabels")
    match_expressions = snapshots.get_list(selector, "matchExpressions")
    expressions = [
        (str(item.get("key")), str(item.get("operator")), tuple(sorted(item.get("values") or ())))
        for item in match_expressions
    ]
    return expressions + [(key, "In", (value,)) for key, value in labels.items()]


def _format_expressions(expressions: Any) -> str:
    return (
        " and ".join(f"{key} {operator} {','.join(values)}".strip() for key, operator, values in expressions) or "empty"
    )


CHECKS: check_rows.Checks = {
    "mutating-configuration": _check_exists("mutating"),
    "validating-configuration": _check_exists("validating"),
    "entries-complete": _check_complete,
    "entries-target": _check_entries(_find_target_problem),
    "entries-rules": _check_entries(_find_rule_problem),
    "entries-selectors": _check_entries(_find_selector_problem),
    "entries-exclusions": _check_entries(_find_exclusion_problem),
    "failure-policy": _check_entries(_find_failure_policy_problem, warn_only=True),
    "timeouts": _check_timeouts,
    "webhook-order": _check_order,
}
