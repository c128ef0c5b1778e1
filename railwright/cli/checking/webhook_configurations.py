"""Checks of the webhook configurations: compares the fields whose drift breaks admission with those of the release.

`webhook_entries.json` has the entries of manifests/base/admission.yaml. Match conditions are compared by name, because
their text is CEL. Deliberate differences (a URL instead of a Service, more excluded namespaces) are accepted.
"""

import collections
import functools
import importlib.resources
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, State, assess_problems, fail, ok, require, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_path
from railwright.cluster import installed_names
from railwright.fabric import label_selectors, text

NAME_LABEL = "kubernetes.io/metadata.name"
_PODS = "pods.railwright.io"  # entry for pods that have the label themselves
_MAX_SECONDS = 10  # the API's default of timeoutSeconds; railwright answers faster
_MAX_TOTAL_SECONDS = 30  # of all webhooks on a pod; kube-apiserver ends a request after 60 (--request-timeout)
_KINDS = {"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}


class Entry(msgspec.Struct, frozen=True):
    """The fields of an entry that are compared. `called` has pairs of GROUP/RESOURCE and operation of its rules."""

    name: str
    target: str  # namespace/name of the Service
    url: str
    path: str
    failure_policy: str
    seconds: int  # timeoutSeconds
    called: frozenset[tuple[str, str]]
    objects: Sequence[label_selectors.Expression]
    namespaces: Sequence[label_selectors.Expression]  # without those for names of namespaces
    excluded: frozenset[str]  # names of namespaces
    included: list[tuple[str, ...]]  # names of namespaces to which it is limited
    conditions: list[str]
    is_reinvoked: bool


def read_entry(hook: Mapping[str, Any]) -> Entry:
    """Return an entry of a webhook configuration."""
    client = get_map(hook, "clientConfig")
    service, url = get_map(client, "service"), client.get("url") or ""
    namespaces = snapshots.read_selector(hook.get("namespaceSelector"))
    return Entry(
        name=str(hook.get("name")),
        target=f"{service.get('namespace')}/{service.get('name')}",
        url=url,
        path=urllib.parse.urlsplit(url).path if url else service.get("path") or "/",
        failure_policy=hook.get("failurePolicy", "Fail"),
        seconds=int(hook.get("timeoutSeconds") or _MAX_SECONDS),
        called=frozenset(_list_called(hook)),
        objects=snapshots.read_selector(hook.get("objectSelector")),
        namespaces=[item for item in namespaces if item[0] != NAME_LABEL],
        excluded=frozenset(
            name for key, operator, values in namespaces if (key, operator) == (NAME_LABEL, "NotIn") for name in values
        ),
        included=[values for key, operator, values in namespaces if (key, operator) == (NAME_LABEL, "In")],
        conditions=[str(condition.get("name")) for condition in get_list(hook, "matchConditions")],
        is_reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
    )


@functools.cache
def read_expected() -> Mapping[str, Entry]:
    """Return the entries of this release by name."""
    data = importlib.resources.files("railwright.cli.checking").joinpath("webhook_entries.json").read_bytes()
    return {hook["name"]: read_entry(hook) for hook in msgspec.json.decode(data)}


def _list_called(hook: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of GROUP/RESOURCE and operation in an entry's rules. Wildcards are expanded for pods only."""
    for rule in get_list(hook, "rules"):
        groups, resources, operations = (get_list(rule, key) for key in ("apiGroups", "resources", "operations"))
        called = [f"{group}/{resource}" for group in groups for resource in resources]
        if {"*", ""} & set(groups) and {"*", "*/*"} & set(resources):
            called.append("/pods")
        for operation in ("CREATE", "UPDATE"):
            if operation in operations or "*" in operations:
                yield from ((resource, operation) for resource in called)


def _list_entries(snapshot: Snapshot) -> list[Entry]:
    return [read_entry(hook) for hook in snapshot.hooks]


def find_excluded_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the namespaces whose new pods are not sent to the webhook."""
    excluded = next((entry.excluded for entry in _list_entries(snapshot) if entry.name == _PODS), frozenset())
    return excluded | {"kube-system", installed_names.NAMESPACE, snapshot.namespace}


def _check_exists(source: str, snapshot: Snapshot) -> Assessment:
    configuration = snapshot.find(source, snapshots.CONFIGURATION)
    if configuration is None and source == "mutating" and snapshot.is_disabled:
        return fail(check_rows.DISABLED, check_rows.ENABLE)
    if configuration is None:
        missing = f"{_KINDS[source]} {snapshots.CONFIGURATION} does not exist"
        return fail(f"{missing}: the API server does not call the webhook")
    return ok(text.format_count(len(get_list(configuration, "webhooks")), "entry"))


def _check_complete(snapshot: Snapshot) -> Assessment:
    installed = {entry.name for entry in _list_entries(snapshot)}
    if missing := [name for name in read_expected() if name not in installed]:
        return fail(f"missing: {', '.join(missing)}")
    if unexpected := sorted(installed - read_expected().keys()):
        return warn(f"entries that this release does not have: {', '.join(unexpected)}")
    return ok(text.format_count(len(installed), "entry"))


FindProblem = Callable[[Entry, Entry, str], str]
"""Returns "" or what is wrong with an entry, given the expected one and the namespace of the installation."""


def _check_entries(find_problem: FindProblem, bad: Callable[[str], Assessment], snapshot: Snapshot) -> Assessment:
    """Apply `find_problem` to all entries of this release."""
    entries = [entry for entry in _list_entries(snapshot) if entry.name in read_expected()]
    require(entries, "railwright has no entry in the webhook configurations")
    problems = {entry.name: find_problem(entry, read_expected()[entry.name], snapshot.namespace) for entry in entries}
    return assess_problems(problems, bad=bad)


def _find_target_problem(entry: Entry, expected: Entry, namespace: str) -> str:
    target = f"{namespace}/{snapshots.WEBHOOK}"
    if not entry.url and entry.target != target:
        return f"calls Service {entry.target}, not {target}"
    return "" if entry.path == expected.path else f"calls path {entry.path}, not {expected.path}"


def _find_rule_problem(entry: Entry, expected: Entry, _namespace: str) -> str:
    missing = sorted(f"{operation} {resource.lstrip('/')}" for resource, operation in expected.called - entry.called)
    return f"is not called for {text.join_first(missing, 3)}" if missing else ""


def _find_selector_problem(entry: Entry, expected: Entry, _namespace: str) -> str:
    for name, actual, other in (
        ("objectSelector", entry.objects, expected.objects),
        ("namespaceSelector", entry.namespaces, expected.namespaces),
    ):
        if set(actual) != set(other):
            formatted = [snapshots.format_selector(expressions) or "empty" for expressions in (actual, other)]
            return f"{name} is {formatted[0]}, expected {formatted[1]}"
    missing = sorted(set(expected.conditions) - set(entry.conditions))
    return f"lacks the match condition {', '.join(missing)}" if missing else ""


def _find_exclusion_problem(entry: Entry, expected: Entry, namespace: str) -> str:
    if not expected.excluded:
        return ""
    missing = [
        name
        for name in sorted({"kube-system", namespace} - entry.excluded)
        if all(name in values for values in entry.included)
    ]
    return f"does not exclude namespace {' and '.join(missing)}" if missing else ""


def _find_failure_policy_problem(entry: Entry, expected: Entry, _namespace: str) -> str:
    if expected.failure_policy == "Fail" and entry.failure_policy != "Fail":
        return "failurePolicy Ignore: while the webhook is down, training pods run without their network"
    if expected.failure_policy != "Fail" and entry.failure_policy == "Fail":
        return "failurePolicy Fail, expected Ignore: while the webhook is down, it also blocks pods that did not opt in"
    return ""


def _find_timeout_problem(entry: Entry, expected: Entry, _namespace: str) -> str:
    if entry.seconds < expected.seconds:
        return f"timeoutSeconds {entry.seconds}, expected {expected.seconds}"
    if entry.seconds > _MAX_SECONDS:
        return f"timeoutSeconds {entry.seconds}: a hanging webhook delays every pod by {entry.seconds} s"
    return ""


def _check_timeouts(snapshot: Snapshot) -> Assessment:
    assessment = _check_entries(_find_timeout_problem, warn, snapshot)
    if assessment.state is not State.OK:
        return assessment
    others = dict(_list_other_webhooks(snapshot))
    total = max(entry.seconds for entry in _list_entries(snapshot)) + _sum_timeouts(others.values())
    if total > _MAX_TOTAL_SECONDS:
        return warn(
            f"the timeouts of all webhooks on a pod add up to {total} s ({text.join_first(others, 5)}); "
            "the API server may end the request first",
            "lower timeoutSeconds of the other webhooks: kubectl edit mutatingwebhookconfiguration NAME",
        )
    return ok(f"at most {total} s for a pod, including {text.format_count(len(others), 'other webhook')}")


def _sum_timeouts(entries: Iterable[Entry]) -> int:
    """Return the most seconds that these webhooks may take for one pod.

    A webhook whose objectSelector requires labels is called for the pods of one framework: JobSet's never for those
    of LeaderWorkerSet.
    """
    by_labels: collections.Counter[frozenset[str]] = collections.Counter()
    for entry in entries:
        required = frozenset(key for key, operator, _ in entry.objects if operator in ("In", "Exists"))
        by_labels[required] += entry.seconds
    of_all_pods = by_labels.pop(frozenset(), 0)
    return of_all_pods + max(by_labels.values(), default=0)


def _check_order(snapshot: Snapshot) -> Assessment:
    names = {name for name, _ in _list_other_webhooks(snapshot) if name.partition("/")[0] > snapshots.CONFIGURATION}
    later = text.join_first(sorted(names), 5)
    expected = {name for name, entry in read_expected().items() if entry.is_reinvoked}
    once = [entry.name for entry in _list_entries(snapshot) if entry.name in expected and not entry.is_reinvoked]
    not_reinvoked = text.join_first(once, 5)
    if not_reinvoked and later:
        return fail(f"{later} change pods after railwright, and {not_reinvoked} are not called again")
    if not_reinvoked:
        return warn(f"{not_reinvoked}: reinvocationPolicy is not IfNeeded, so changes by later webhooks are missed")
    return ok(f"called again after {later}" if later else "no other webhook changes pods later")


def _list_other_webhooks(snapshot: Snapshot) -> Iterator[tuple[str, Entry]]:
    """Yield the foreign mutating webhooks that are called for new pods, as CONFIGURATION/NAME and entry."""
    for configuration in snapshot.get_all("mutating"):
        name = str(get_path(configuration, "metadata", "name"))
        for entry in map(read_entry, get_list(configuration, "webhooks") if name != snapshots.CONFIGURATION else ()):
            if ("/pods", "CREATE") in entry.called:
                yield f"{name}/{entry.name}", entry


CHECKS: Checks = {
    "mutating-configuration": functools.partial(_check_exists, "mutating"),
    "validating-configuration": functools.partial(_check_exists, "validating"),
    "entries-complete": _check_complete,
    "entries-target": functools.partial(_check_entries, _find_target_problem, fail),
    "entries-rules": functools.partial(_check_entries, _find_rule_problem, fail),
    "entries-selectors": functools.partial(_check_entries, _find_selector_problem, fail),
    "entries-exclusions": functools.partial(_check_entries, _find_exclusion_problem, fail),
    "failure-policy": functools.partial(_check_entries, _find_failure_policy_problem, warn),
    "timeouts": _check_timeouts,
    "webhook-order": _check_order,
}
