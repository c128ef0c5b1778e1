"""POST /mutate/pods: answers a review of a pod. Pure, given the policy and the cluster facts.

Answers CREATE requests only, and formats a plan as patch, warnings, audit annotations or rejection.
"""

from collections.abc import Callable, Sequence

import msgspec

from railwright.fabric import admission, names, text, views
from railwright.fabric.injection import drafts, facts, opt_in, plan
from railwright.fabric.policy import model as policies
from webhook import response_cache, reviews

_DECODER, _KIND = (
    msgspec.json.Decoder(reviews.Review[reviews.Request[views.Pod]]),
    reviews.GroupVersionKind("", "v1", "Pod"),
)
_ANY_REQUEST = reviews.Request[views.Pod]()
_UNKNOWN = "unknown"  # replaces label values that the policy does not define, in metrics and audit annotations
_MAX_EVENT = 4096  # characters: a message contains names that users write and that are not validated yet
_MAX_AUDIT = 1024  # characters of one audit annotation: a policy may give rails long names

GetFacts = Callable[[str], facts.ClusterFacts]


def handle(
    body: bytes,
    policy: policies.Policy | None,
    get_facts: GetFacts,
    cache: response_cache.ResponseCache | None = None,
) -> reviews.Answer:
    """Answer a review. Raises reviews.MalformedError for anything but a review of a pod.

    With a cache, equal pods are planned once. The answer is the same with and without one.
    """
    if too_large := reviews.reject_too_large(body, reviews.MAX_POD_VALUES):
        return reviews.build_answer(*too_large, fabric=_UNKNOWN, role=_UNKNOWN)
    request = reviews.decode(_DECODER, body, _KIND)
    if request.operation != "CREATE" or request.sub_resource:
        return reviews.allow(request)
    pod = request.object
    if pod is None:
        raise reviews.MalformedError("request.object is missing; a CREATE has one")
    cluster_facts = get_facts(request.namespace)
    if policy is None:
        return _handle_without_policy(request, pod, cluster_facts)
    entry = cache.build_entry(pod, len(body), policy, cluster_facts) if cache is not None else None
    if cache is not None and entry is not None and (cached := cache.by_key.get(entry[0])) is not None:
        return _complete_answer(cached, request, pod)
    title = f"Pod {plan.format_title(pod, request.namespace)}"
    outcome = admission.plan(pod if entry is None else entry[1], policy, cluster_facts, title)
    is_enforced = policy.document.is_enforced
    if isinstance(outcome, plan.NotOptedIn):
        if not opt_in.awaits_namespace(pod, cluster_facts, policy.document.accelerators):
            return reviews.allow(request, outcome.warnings)
        outcome = _build_namespace_refusal(request, pod)
    if is_enforced and isinstance(outcome, plan.Refusal):
        return _reject(request, pod, outcome)
    answer = _build_injection(outcome) if isinstance(outcome, plan.Injection) and is_enforced else _warn(outcome)
    if cache is not None and entry is not None and isinstance(outcome, plan.Injection):
        cache.by_key.add(entry[0], answer)
    return _complete_answer(answer, request, pod)


def _complete_answer(answer: reviews.Answer, request: reviews.Request[views.Pod], pod: views.Pod) -> reviews.Answer:
    """Return the answer with the uid of this request. Equal requests share the rest."""
    lines = [warning.line for warning in answer.warnings]
    events = _build_events(request, pod, lines) if lines else ()
    return msgspec.structs.replace(answer, uid=request.uid, dry_run=bool(request.dry_run), events=events)


def _build_injection(injection: plan.Injection) -> reviews.Answer:
    """Return the answer that changes a pod, for any request with an equal pod."""
    response = reviews.Response(
        operations=drafts.list_operations(injection.changes),
        warnings=injection.warnings,
        audit={
            "fabric": injection.fabric,
            "role": injection.role,
            "rails": text.limit(",".join(injection.rails), _MAX_AUDIT),
            "changes": str(len(injection.changes)),
        },
    )
    return reviews.build_answer(_ANY_REQUEST, response, fabric=injection.fabric, role=injection.role)


def _warn(outcome: plan.Injection | plan.Refusal) -> reviews.Answer:
    """Return the answer of mode `warn`, for any request with an equal pod: warnings about the omitted changes."""
    fabric = outcome.fabric or _UNKNOWN
    role = outcome.role if isinstance(outcome, plan.Injection) else _UNKNOWN
    response = reviews.Response(
        warnings=plan.describe_unenforced(outcome), audit={"fabric": fabric, "role": role, "mode": policies.WARN}
    )
    if isinstance(outcome, plan.Refusal):
        word = reviews.WOULD_REFUSE
    else:
        word = reviews.WOULD_PATCH if any(change.entry for change in outcome.changes) else reviews.ALLOWED
    return reviews.build_answer(_ANY_REQUEST, response, outcome=word, fabric=fabric, role=role)


def _handle_without_policy(
    request: reviews.Request[views.Pod], pod: views.Pod, cluster_facts: facts.ClusterFacts
) -> reviews.Answer:
    """Reject pods that may opt in while there is no policy: they would start without their network."""
    if opt_in.find_label(pod, cluster_facts.namespace_labels) is None:
        if not opt_in.awaits_namespace(pod, cluster_facts):
            return reviews.allow(request)
        return _reject(request, pod, _build_namespace_refusal(request, pod))
    problem = (
        "railwright has no policy in force yet: it may still be starting, so try again in a moment; if that does not "
        "help, the policy is missing or invalid: ask a cluster administrator to run `railwright check`"
    )
    return _reject(request, pod, _build_refusal(request, pod, "no-policy", problem))


def _build_namespace_refusal(request: reviews.Request[views.Pod], pod: views.Pod) -> plan.Refusal:
    problem = (
        f"the labels of namespace {request.namespace} are not known yet, so label {names.FABRIC} there may or may not "
        "opt the pod in; try again, or set the label on the pod"
    )
    return _build_refusal(request, pod, "namespace-unknown", problem)


def _build_refusal(request: reviews.Request[views.Pod], pod: views.Pod, reason: str, problem: str) -> plan.Refusal:
    message = f"Pod {plan.format_title(pod, request.namespace)}: {problem}"
    return plan.Refusal("", reason, message, problem=problem)


def _reject(request: reviews.Request[views.Pod], pod: views.Pod, refusal: plan.Refusal) -> reviews.Answer:
    fabric = refusal.fabric or _UNKNOWN
    response = reviews.reject(refusal.message, refusal.reason, {"fabric": fabric})
    # without the pod's name, so that all pods of one owner share one Event
    event_message = f"{refusal.reason}: {refusal.problem or refusal.message}"
    events = _build_events(request, pod, (event_message,), rejected=True)
    return reviews.build_answer(request, response, fabric=fabric, role=_UNKNOWN, events=events)


def _build_events(
    request: reviews.Request[views.Pod], pod: views.Pod, messages: Sequence[str], *, rejected: bool = False
) -> tuple[reviews.EventRecord, ...]:
    """Return the record for the pod's owner. None without an owner, and on a dry run, which must have no effect."""
    owner = pod.metadata.controller
    if owner is None or request.dry_run:
        return ()
    limited = tuple(text.limit(message, _MAX_EVENT) for message in messages[: reviews.MAX_WARNINGS])
    return (reviews.EventRecord(namespace=request.namespace, owner=owner, rejected=rejected, messages=limited),)
