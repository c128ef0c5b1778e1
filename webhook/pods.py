"""POST /mutate/pods: answers a review of a pod, from the policy and the cluster facts alone.

Answers CREATE requests only, and formats a plan as patch, warnings, audit annotations or rejection.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric import admission, names, text, views
from railwright.fabric.injection import drafts, facts, opt_in, plan
from railwright.fabric.policy import model as policies
from webhook import response_cache, reviews

_DECODER = msgspec.json.Decoder(reviews.Review[views.Pod])
_KIND = reviews.GroupVersionKind("", "v1", "Pod")
_NO_POLICY = (
    "railwright has no policy in force yet: it may still be starting, so try again in a moment; if that does not help, "
    "the policy is missing or invalid: ask a cluster administrator to run `railwright check`"
)

GetFacts = Callable[[str], facts.ClusterFacts]


def answer_review(
    body: bytes,
    policy: policies.Policy | None,
    get_facts: GetFacts,
    cache: response_cache.ResponseCache | None = None,
) -> reviews.Answer:
    """Answer a review. Raises reviews.MalformedError for anything but a review of a pod.

    With a cache, equal pods are planned once. The answer is the same with and without one.
    """
    if too_large := reviews.reject_too_large(body, reviews.MAX_POD_VALUES):
        named, rejection = too_large
        return msgspec.structs.replace(rejection, role=reviews.UNKNOWN).address_to(named)
    request = reviews.decode_request(_DECODER, body, _KIND)
    if request.operation != "CREATE" or request.sub_resource:
        return reviews.Answer().address_to(request)
    pod = request.object
    if pod is None:
        raise reviews.MalformedError("request.object is missing; a review of a CREATE must have it")
    answer = _answer_pod(request.namespace, pod, len(body), policy, get_facts(request.namespace), cache)
    return answer.address_to(request, pod.metadata.controller if answer.role else None)


def _answer_pod(  # noqa: PLR0913, PLR0917 - what an answer depends on
    namespace: str,
    pod: views.Pod,
    size: int,
    policy: policies.Policy | None,
    cluster_facts: facts.ClusterFacts,
    cache: response_cache.ResponseCache | None,
) -> reviews.Answer:
    """Return the answer about a pod, without the uid and the owner of its request."""
    title = f"Pod {plan.format_title(pod, namespace)}"
    if policy is None:  # a pod that may opt in would start without its network
        if opt_in.find_label(pod, cluster_facts.namespace_labels) is not None:
            return _build_rejection(_build_refusal(title, "no-policy", _NO_POLICY))
        if opt_in.awaits_namespace(pod, cluster_facts):
            return _build_rejection(_build_namespace_refusal(title, namespace))
        return reviews.Answer()
    entry = cache.build_entry(pod, size, policy, cluster_facts) if cache is not None else None
    if cache is not None and entry is not None and (cached := cache.get(entry[0])) is not None:
        return cached
    outcome = admission.plan_pod(pod if entry is None else entry[1], policy, cluster_facts, title)
    if isinstance(outcome, plan.NotOptedIn):
        if not opt_in.awaits_namespace(pod, cluster_facts, policy.document.accelerators):
            return reviews.Answer(warnings=outcome.warnings)
        outcome = _build_namespace_refusal(title, namespace)
    if not policy.document.is_enforced:
        answer = _answer_with_warnings(outcome)
    elif isinstance(outcome, plan.Refusal):
        return _build_rejection(outcome)
    else:
        answer = _answer_with_patch(outcome)
    answer = msgspec.structs.replace(answer, encoded=answer.encode_without_uid())
    if cache is not None and entry is not None and isinstance(outcome, plan.Injection):
        cache.add(entry[0], answer)
    return answer


def _answer_with_patch(injection: plan.Injection) -> reviews.Answer:
    return reviews.Answer(
        operations=drafts.list_operations(injection.changes),
        warnings=injection.warnings,
        audit={
            "fabric": injection.fabric,
            "role": injection.role,
            "rails": text.limit_message(",".join(injection.rails), reviews.MAX_AUDIT),
            "changes": str(len(injection.changes)),
        },
        fabric=injection.fabric,
        role=injection.role,
    )


def _answer_with_warnings(outcome: plan.Injection | plan.Refusal) -> reviews.Answer:
    """Return the answer of mode `warn`: the pod is unchanged, and warnings list what enforcing would do."""
    fabric, role, word = outcome.fabric or reviews.UNKNOWN, reviews.UNKNOWN, reviews.WOULD_REFUSE
    if isinstance(outcome, plan.Injection):
        role = outcome.role
        word = reviews.WOULD_PATCH if any(change.entry for change in outcome.changes) else reviews.ALLOWED
    return reviews.Answer(
        warnings=plan.describe_unenforced(outcome),
        audit={"fabric": fabric, "role": role, "mode": policies.WARN},
        fabric=fabric,
        role=role,
        unenforced=word,
    )


def _build_namespace_refusal(title: str, namespace: str) -> plan.Refusal:
    problem = (
        f"the labels of namespace {namespace} are not known yet, so its label {names.FABRIC} may or may not opt the "
        "pod in; try again, or set the label on the pod"
    )
    return _build_refusal(title, "namespace-unknown", problem)


def _build_refusal(title: str, reason: str, problem: str) -> plan.Refusal:
    return plan.Refusal("", reason, f"{title}: {problem}", problem=problem)


def _build_rejection(refusal: plan.Refusal) -> reviews.Answer:
    rejection = reviews.build_rejection(refusal.message, refusal.reason, refusal.fabric)
    return msgspec.structs.replace(rejection, role=reviews.UNKNOWN, problem=refusal.problem)
