"""Rows about our webhook configurations: there, whole, called for the right objects, and not for the wrong ones.

Owns the comparison of installed entries with `shipped`. What differs on purpose (a URL for a Service, more exclusions)
is no finding.
"""

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from railwright.cli.checking import model, shipped
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn

_APPLY = "kubectl apply -k manifests/base, then: railwright certs rotate"
_EDIT = "kubectl edit mutatingwebhookconfiguration railwright (manifests/base/admission.yaml has the entry)"
_EXCLUDE = (
    "add {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, railwright-system]} to its "
    "namespaceSelector: kubectl edit mutatingwebhookconfiguration railwright"
)
_LONGEST = 10  # seconds: the default of the API, and more than any answer of ours takes
_ALL_TOGETHER = (
    30  # seconds that all webhooks on one pod may take: kube-apiserver gives a request 60 (--request-timeout)
)
_KINDS = {"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}


def find_excluded_namespaces(seen: sight.Seen) -> frozenset[str]:
    """Find the namespaces that the API server does not call us for when a pod is created, by name."""
    pods = next((hook for hook in seen.hooks if hook.get("name") == shipped.PODS), {})
    named = (each for each in _expressions(pods.get("namespaceSelector")) if each[0] == shipped.NAME_LABEL)
    excluded = {value for _, operator, values in named if operator == "NotIn" for value in values}
    return frozenset({*shipped.EXCLUDED, seen.namespace, *excluded})


def _exists(source: str) -> model.Judge:
    def judge(seen: sight.Seen) -> model.Verdict:
        found = seen.named(source, sight.CONFIGURATION)
        if found is None:
            return fail(f"{_KINDS[source]} {sight.CONFIGURATION} does not exist: the API server calls nobody")
        return ok(sight.counted(len(sight.dig(found, "webhooks") or ()), "entry"))

    return judge


def _complete(seen: sight.Seen) -> model.Verdict:
    there = {str(hook.get("name")) for hook in seen.hooks}
    missing = [name for name in shipped.ENTRIES if name not in there]
    if missing:
        return fail(f"without {', '.join(missing)}")
    more = sorted(there - set(shipped.ENTRIES))
    if more:
        return warn(f"has entries that this release does not know: {', '.join(more)}")
    return ok(sight.counted(len(there), "entry"))


def _each(
    problem: Callable[[Mapping[str, Any], shipped.Entry, str], str], told: str = "", *, soft: bool = False
) -> model.Judge:
    """All entries by one test, which gives "" or what is wrong."""

    def judge(seen: sight.Seen) -> model.Verdict:
        known = [(hook, shipped.ENTRIES[hook["name"]]) for hook in seen.hooks if hook.get("name") in shipped.ENTRIES]
        if not known:
            return skip("there is no entry of ours")
        found = [f"{hook['name']}: {what}" for hook, entry in known if (what := problem(hook, entry, seen.namespace))]
        if not found:
            return ok(told)
        return (warn if soft else fail)(sight.listed(found, 3))

    return judge


def _target(hook: Mapping[str, Any], entry: shipped.Entry, namespace: str) -> str:
    service, url = sight.dig(hook, "clientConfig", "service"), sight.dig(hook, "clientConfig", "url")
    path = urllib.parse.urlsplit(url).path if url else sight.dig(service, "path") or "/"
    where = f"{sight.dig(service, 'namespace')}/{sight.dig(service, 'name')}"
    if not url and where != f"{namespace}/{sight.WEBHOOK}":
        return f"calls Service {where}, not {namespace}/{sight.WEBHOOK}"
    return "" if path == entry.path else f"calls path {path}, not {entry.path}"


def _rules(hook: Mapping[str, Any], entry: shipped.Entry, _namespace: str) -> str:
    called = _called(hook)
    missing = sorted(f"{operation} {resource.lstrip('/')}" for resource, operation in entry.resources - called)
    return f"is not called for {sight.listed(missing, 3)}" if missing else ""


def _selectors(hook: Mapping[str, Any], entry: shipped.Entry, _namespace: str) -> str:
    objects = _expressions(hook.get("objectSelector"))
    if set(objects) != set(entry.objects):
        return f"objectSelector is {_written(objects)}, shipped is {_written(entry.objects)}"
    namespaces = [each for each in _expressions(hook.get("namespaceSelector")) if each[0] != shipped.NAME_LABEL]
    if set(namespaces) != set(entry.namespaces):
        return f"namespaceSelector is {_written(namespaces)}, shipped is {_written(entry.namespaces)}"
    conditions = {str(each.get("name")) for each in hook.get("matchConditions") or ()}
    if not conditions >= set(entry.conditions):
        return f"is without the match condition {', '.join(sorted(set(entry.conditions) - conditions))}"
    return ""


def _exclusions(hook: Mapping[str, Any], entry: shipped.Entry, namespace: str) -> str:
    if not entry.mutating:
        return ""
    named = [each for each in _expressions(hook.get("namespaceSelector")) if each[0] == shipped.NAME_LABEL]
    excluded = {value for _, operator, values in named if operator == "NotIn" for value in values}
    chosen = [set(values) for _, operator, values in named if operator == "In"]
    wanted = {"kube-system", namespace}
    lacking = sorted(each for each in wanted - excluded if not chosen or all(each in values for values in chosen))
    return f"is called for namespace {' and '.join(lacking)}" if lacking else ""


def _closed(hook: Mapping[str, Any], entry: shipped.Entry, _namespace: str) -> str:
    there = hook.get("failurePolicy", "Fail")
    if entry.closed and there != "Fail":
        return "failurePolicy Ignore: while the webhook is away, training pods run without their network"
    if not entry.closed and there == "Fail":
        return "failurePolicy Fail, shipped is Ignore: more than opted-in pods stands still while the webhook is away"
    return ""


def _seconds(hook: Mapping[str, Any], entry: shipped.Entry, _namespace: str) -> str:
    there = int(hook.get("timeoutSeconds") or _LONGEST)
    if there < entry.seconds:
        return f"timeoutSeconds {there}, shipped is {entry.seconds}"
    return f"timeoutSeconds {there}: a webhook that hangs holds every pod up for so long" if there > _LONGEST else ""


def _timeouts(seen: sight.Seen) -> model.Verdict:
    found = _each(_seconds, soft=True)(seen)
    if not isinstance(found, model.Verdict) or found.state is not model.State.OK:
        return found  # type: ignore[return-value]  # _each gives one verdict
    others = {each: int(hook.get("timeoutSeconds") or _LONGEST) for each, hook in _others(seen)}
    ours = max(int(hook.get("timeoutSeconds") or _LONGEST) for hook in seen.hooks)
    together = ours + sum(others.values())
    if together > _ALL_TOGETHER:
        return warn(
            f"all webhooks on a pod may take {together} s together ({sight.listed(others)}): the request ends before",
            "lower timeoutSeconds of those: kubectl edit mutatingwebhookconfiguration NAME",
        )
    return ok(f"{together} s at most for a pod, {sight.counted(len(others), 'other webhook')} included")


def _order(seen: sight.Seen) -> model.Verdict:
    after = sorted({name for name, _ in _others(seen) if name.partition("/")[0] > sight.CONFIGURATION})
    never = [
        hook["name"]
        for hook in seen.hooks
        if hook.get("name") in shipped.ENTRIES
        and shipped.ENTRIES[hook["name"]].reinvoked
        and hook.get("reinvocationPolicy") != "IfNeeded"
    ]
    if never and after:
        return fail(f"{sight.listed(after)} change pods after us, and {sight.listed(never)} are not called again")
    if never:
        return warn(f"{sight.listed(never)}: reinvocationPolicy is not IfNeeded; what others change is not seen")
    return ok(
        f"after us: {sight.listed(after)}; we are called again" if after else "no other webhook changes pods after us"
    )


def _others(seen: sight.Seen) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Mutating webhooks of others that are called for new pods: CONFIGURATION/NAME and entry."""
    for each in seen.all("mutating"):
        name = str(sight.dig(each, "metadata", "name"))
        if name != sight.CONFIGURATION:
            for hook in sight.dig(each, "webhooks") or ():
                if ("/pods", "CREATE") in _called(hook):
                    yield f"{name}/{hook.get('name')}", hook


def _called(hook: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """GROUP/RESOURCE and operation; stars are written out for pods only, where others have them."""
    found: set[tuple[str, str]] = set()
    for rule in hook.get("rules") or ():
        groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
        operations = rule.get("operations") or ()
        every = [each for each in ("CREATE", "UPDATE") if each in operations or "*" in operations]
        if ("*" in groups or "" in groups) and ("*" in resources or "*/*" in resources):
            found |= {("/pods", operation) for operation in every}
        found |= {(f"{group}/{resource}", each) for group in groups for resource in resources for each in every}
    return frozenset(found)


def _expressions(selector: Any) -> list[shipped.Expression]:
    labels = sight.dig(selector, "matchLabels") or {}
    given = sight.dig(selector, "matchExpressions") or ()
    found = [(str(e.get("key")), str(e.get("operator")), tuple(sorted(e.get("values") or ()))) for e in given]
    return found + [(key, "In", (value,)) for key, value in labels.items()]


def _written(expressions: Any) -> str:
    return (
        " and ".join(f"{key} {operator} {','.join(values)}".strip() for key, operator, values in expressions) or "empty"
    )


def rows() -> Iterator[Row]:
    """The group `webhook configurations`."""
    both = ("mutating", "validating")
    yield Row("mutating-configuration", "the mutating configuration exists", _exists("mutating"), _APPLY,
              ("mutating",), ("api-reachable",))  # fmt: skip
    yield Row("validating-configuration", "the validating configuration exists", _exists("validating"), _APPLY,
              ("validating",), ("api-reachable",))  # fmt: skip
    basis = ("mutating-configuration", "validating-configuration")
    for anchor, name, judge, hint in _COMPARED:
        yield Row(anchor, name, judge, hint, both, basis)


_COMPARED: tuple[tuple[str, str, model.Judge, str], ...] = (
    ("entries-complete", "no entry is missing", _complete, _APPLY),
    ("entries-target", "entries call the webhook by their own paths", _each(_target), _EDIT),
    ("entries-rules", "entries are called for all they have to change", _each(_rules), _EDIT),
    ("entries-selectors", "entries are called for what opted in, and nothing else", _each(_selectors), _EDIT),
    (
        "entries-exclusions",
        "kube-system and the webhook's own namespace are left alone",
        _each(_exclusions),
        _EXCLUDE,
    ),
    ("failure-policy", "pods that opted in wait for the webhook, others never do", _each(_closed, soft=True), _EDIT),
    ("timeouts", "webhooks answer in time, or not at all", _timeouts, _EDIT),
    ("webhook-order", "what other webhooks do is seen", _order, _EDIT),
)
