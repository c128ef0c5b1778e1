"""POST /mutate/pods: answers a review of a pod. Pure, given the policy and the cluster facts.

Selects the operations that matter, and formats a plan as patch, warnings, audit annotations or rejection.
"""

from collections.abc import Callable, Sequence
from typing import Any

from railwright.fabric import admission, intent, names, text, views
from railwright.fabric.injection import facts, opt_in, plan, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering
from railwright.serving import tracing as traces
from webhook import answer, patch, response_cache, review_size, trace_attributes, wire

_READER = wire.Reader(views.Pod, "Pod")
_FORBIDDEN = 403
_UNKNOWN = "unknown"  # replaces label values that the policy does not define, in metrics and audit annotations
_MAX_MESSAGE = 4096  # characters: a message contains names that users write and that are not validated yet
_MAX_AUDIT = 1024  # characters of one audit annotation: a policy may give rails long names

GetFacts = Callable[[str], facts.ClusterFacts]


def handle(
    body: bytes,
    policy: policies.Policy | None,
    get_facts: GetFacts,
    cache: response_cache.ResponseCache | None = None,
    tracing: traces.Tracing = traces.OFF,
) -> answer.Answer:
    """Answer a review. Raises wire.MalformedError for anything but a review of a pod.

    With a cache, equal pods are planned once. The answer is the same with and without one.
    """
    if too_large := review_size.build_response(body, review_size.MAX_POD_VALUES):
        return _reject_large(*too_large)
    with tracing.span("decode"):
        request = _READER.read(body)
    tracing.note(lambda: trace_attributes.list_request(request))
    if request.operation != "CREATE" or request.sub_resource:
        return _allow(request)
    pod = request.object
    if pod is None:
        raise wire.MalformedError("request.object is missing; a CREATE has one")
    cluster_facts = get_facts(request.namespace)
    if policy is None:
        return _handle_without_policy(request, pod, cluster_facts)
    key = cache.build_key(pod, policy, cluster_facts) if cache is not None else None
    if cache is not None and key is not None and (cached := cache.by_key.get(key)) is not None:
        return _build_answer(request, pod, cached)
    with tracing.span("plan"):
        outcome = admission.plan(pod, policy, cluster_facts)
    if isinstance(outcome, pod_changes.NotOptedIn):
        if opt_in.awaits_namespace(pod, policy.document, cluster_facts):
            return _answer_unknown_namespace(request, pod, policy)
        return _allow(request, outcome.warnings)
    if isinstance(outcome, pod_changes.Refusal):
        return _reject(request, pod, outcome)
    with tracing.span("patch"):
        response = _build_response(pod, outcome)
    if cache is not None and key is not None:
        cache.by_key.add(key, response)
    return _build_answer(request, pod, response)


def _build_answer(
    request: wire.Request[views.Pod], pod: views.Pod, cached: response_cache.CachedResponse
) -> answer.Answer:
    return answer.Answer(
        body=wire.wrap_response(request.uid, cached.response),
        outcome=cached.outcome,
        fabric=cached.fabric,
        role=cached.role,
        operations=cached.operations,
        warnings=wire.list_codes(cached.warnings),
        dry_run=bool(request.dry_run),
        events=_build_events(request, pod, [warning.line for warning in cached.warnings]),
    )


def _build_response(
    pod: views.Pod, outcome: pod_changes.Injection | pod_changes.Audit
) -> response_cache.CachedResponse:
    return _build_audit(pod, outcome) if isinstance(outcome, pod_changes.Audit) else _build_injection(pod, outcome)


def _build_injection(pod: views.Pod, injection: pod_changes.Injection) -> response_cache.CachedResponse:
    operations = patch.build_operations(pod, injection.changes)
    response = wire.Response(
        operations=operations,
        warnings=injection.warnings,
        audit={
            "fabric": injection.fabric,
            "role": injection.role,
            "rails": text.limit(",".join(injection.rails), _MAX_AUDIT),
            "changes": str(len(injection.changes)),
        },
    )
    return response_cache.CachedResponse(
        response=wire.encode_fields(response),
        outcome=answer.PATCHED if operations else answer.ALLOWED,
        fabric=injection.fabric,
        role=injection.role,
        operations=len(operations),
        warnings=injection.warnings,
    )


def _build_audit(pod: views.Pod, audit: pod_changes.Audit) -> response_cache.CachedResponse:
    """Build the response to a pod in audit mode: its record, and what would have been done."""
    operations = patch.build_operations(pod, audit.changes)
    notes = {"fabric": audit.fabric or _UNKNOWN, "role": audit.role or _UNKNOWN, "mode": intent.AUDIT}
    outcome = answer.ALLOWED
    if audit.refusal is not None:
        notes["refused"] = audit.refusal.reason
        outcome = answer.WOULD_REFUSE
    elif audit.injection is not None:
        notes["rails"] = text.limit(",".join(audit.injection.rails), _MAX_AUDIT)
        changes = len(audit.injection.changes) - len(audit.changes)
        notes["changes"] = str(changes)
        outcome = answer.WOULD_PATCH if changes else answer.ALLOWED
    response = wire.Response(operations=operations, warnings=audit.warnings, audit=notes)
    return response_cache.CachedResponse(
        response=wire.encode_fields(response),
        outcome=outcome,
        fabric=audit.fabric or _UNKNOWN,
        role=audit.role or _UNKNOWN,
        operations=len(operations),
        warnings=audit.warnings,
    )


def _handle_without_policy(
    request: wire.Request[views.Pod], pod: views.Pod, cluster_facts: facts.ClusterFacts
) -> answer.Answer:
    """Reject pods that may opt in while there is no policy: they would start without their network."""
    if not opt_in.may_opt_in(pod, cluster_facts.namespace_labels):
        may_await_namespace = opt_in.may_await_namespace(pod, cluster_facts)
        return _reject_unknown_namespace(request, pod) if may_await_namespace else _allow(request)
    problem = (
        "railwright has no policy in force yet: it may still be starting, so try again in a moment; if that does not "
        "help, the policy is missing or invalid: the administrator finds the cause with `railwright check`"
    )
    return _reject(request, pod, _build_refusal(request, pod, "no-policy", problem))


def _reject_unknown_namespace(request: wire.Request[views.Pod], pod: views.Pod) -> answer.Answer:
    """Reject a pod of a namespace that the cache does not have yet. The creator retries within moments."""
    return _reject(request, pod, _build_unknown_namespace(request, pod))


def _answer_unknown_namespace(
    request: wire.Request[views.Pod], pod: views.Pod, policy: policies.Policy
) -> answer.Answer:
    """Reject a pod whose namespace may opt it in, unless the policy is in audit mode."""
    if policy.document.mode != intent.AUDIT:
        return _reject_unknown_namespace(request, pod)
    audit = plan.audit_refusal(pod, policy, _build_unknown_namespace(request, pod))
    return _build_answer(request, pod, _build_audit(pod, audit))


def _build_unknown_namespace(request: wire.Request[views.Pod], pod: views.Pod) -> pod_changes.Refusal:
    problem = (
        f"the labels of namespace {request.namespace} are not known yet, so label {names.FABRIC} there may or may not "
        "opt the pod in; try again, or set the label on the pod"
    )
    return _build_refusal(request, pod, "namespace-unknown", problem)


def _build_refusal(request: wire.Request[views.Pod], pod: views.Pod, reason: str, problem: str) -> pod_changes.Refusal:
    message = f"Pod {plan.format_title(pod, request.namespace)}: {problem}"
    return pod_changes.Refusal("", reason, message, problem=problem)


def _reject(request: wire.Request[views.Pod], pod: views.Pod, refusal: pod_changes.Refusal) -> answer.Answer:
    response = wire.Response(
        allowed=False,
        code=_FORBIDDEN,
        message=text.limit(refusal.message, _MAX_MESSAGE),
        cause=refusal.reason,
        audit={"fabric": refusal.fabric or _UNKNOWN, "role": refusal.role or _UNKNOWN, "refused": refusal.reason},
    )
    # without the pod's name, so that all pods of one owner share one Event
    event_message = f"{refusal.reason}: {refusal.problem or refusal.message}"
    return answer.Answer(
        body=wire.write(request.uid, response),
        outcome=answer.REFUSED,
        fabric=refusal.fabric or _UNKNOWN,
        role=refusal.role or _UNKNOWN,
        reason=refusal.reason,
        dry_run=bool(request.dry_run),
        events=_build_events(request, pod, (event_message,), rejected=True),
    )


def _reject_large(request: wire.Request[Any], response: wire.Response) -> answer.Answer:
    return answer.Answer(
        body=wire.write(request.uid, response),
        outcome=answer.REFUSED,
        fabric=_UNKNOWN,
        role=_UNKNOWN,
        reason=response.cause,
        dry_run=bool(request.dry_run),
    )


def _build_events(
    request: wire.Request[views.Pod], pod: views.Pod, messages: Sequence[str], *, rejected: bool = False
) -> tuple[answer.EventRecord, ...]:
    """Return the record for the pod's owner. None without an owner, and on a dry run, which must have no effect."""
    owner = pod.metadata.controller
    if owner is None or not messages or request.dry_run:
        return ()
    limited = tuple(text.limit(message, _MAX_MESSAGE) for message in messages[: wire.MAX_WARNINGS])
    return (answer.EventRecord(namespace=request.namespace, owner=owner, rejected=rejected, messages=limited),)


def _allow(request: wire.Request[views.Pod], warnings: Sequence[rendering.Message] = ()) -> answer.Answer:
    body = wire.write(request.uid, wire.Response(warnings=warnings))
    return answer.Answer(
        body=body,
        outcome=answer.ALLOWED,
        warnings=wire.list_codes(warnings),
        dry_run=bool(request.dry_run),
    )
