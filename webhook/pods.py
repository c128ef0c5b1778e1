"""POST /mutate/pods: a review of a pod -> the review that answers it. Pure, given policy and facts.

Owns which operations concern us and how a plan reads to the caller: patch, warnings, audit annotations, refusal.
"""

from collections.abc import Callable
from typing import NamedTuple

from railwright.fabric import names, views
from railwright.fabric.injection import facts, model, opt_in, plan
from railwright.fabric.policy import model as policies
from webhook import answer, patch, wire
from webhook import memory as memories

_READER = wire.Reader(views.Pod, "Pod")
_FORBIDDEN = 403
_UNKNOWN = "unknown"  # a label value nobody knows is no metric and no audit word of ours
_MAX_MESSAGE = 4096  # characters: names in it are the user's, and not checked yet
_MAX_AUDIT = 1024  # characters of one audit annotation; a fabric has few rails, a policy may give them long names

FactsOf = Callable[[str], facts.Facts]


class Steps(NamedTuple):
    """The parts of an answer that take time, so that somebody can watch each."""

    decode: Callable[[bytes], wire.Request[views.Pod]]
    plan: Callable[[views.Pod, policies.Policy, facts.Facts], plan.Outcome]
    patch: Callable[[views.Pod, model.Injection], memories.Kept]


def handle(
    body: bytes,
    policy: policies.Policy | None,
    facts_of: FactsOf,
    memory: memories.Memory | None = None,
    steps: Steps | None = None,
) -> answer.Answer:
    """The answer. Raises wire.MalformedError for what is no review of a pod.

    With a memory, alike pods are planned once; the answer is the same with and without.
    """
    steps = steps or PLAIN
    request = steps.decode(body)
    if request.operation != "CREATE" or request.sub_resource:
        return _allowed(request)
    pod = request.object
    if pod is None:
        raise wire.MalformedError("request.object is missing; a CREATE has one")
    known = facts_of(request.namespace)
    if policy is None:
        return _without_policy(request, pod, known)
    key = memory.key(pod, policy, known) if memory is not None else None
    if memory is not None and key is not None and (kept := memory.find(key)) is not None:
        return _told(request, pod, kept)
    outcome = steps.plan(pod, policy, known)
    match outcome:
        case model.NotOptedIn():
            undecided = opt_in.undecided(pod, policy.document, known)
            return _unseen(request, pod) if undecided else _allowed(request, outcome.warnings)
        case model.Refusal():
            return _refused(request, pod, outcome)
        case model.Injection():
            made = steps.patch(pod, outcome)
            if memory is not None and key is not None:
                memory.keep(key, made)
            return _told(request, pod, made)


def _told(request: wire.Request[views.Pod], pod: views.Pod, kept: memories.Kept) -> answer.Answer:
    return answer.Answer(
        body=wire.addressed(request.uid, kept.response),
        outcome=kept.outcome,
        fabric=kept.fabric,
        role=kept.role,
        operations=kept.operations,
        warnings=len(kept.warnings),
        dry_run=bool(request.dry_run),
        notice=_notice(request, pod, kept.warnings) if kept.warnings else None,
    )


def _injected(pod: views.Pod, injection: model.Injection) -> memories.Kept:
    operations = patch.operations(pod, injection.changes)
    verdict = wire.Verdict(
        operations=operations,
        warnings=injection.warnings,
        audit={
            "fabric": injection.fabric,
            "role": injection.role,
            "rails": model.bounded(",".join(injection.rails), _MAX_AUDIT),
            "changes": str(len(injection.changes)),
        },
    )
    return memories.Kept(
        response=wire.members(verdict),
        outcome=answer.PATCHED if operations else answer.ALLOWED,
        fabric=injection.fabric,
        role=injection.role,
        operations=len(operations),
        warnings=injection.warnings,
    )


PLAIN = Steps(decode=_READER.read, plan=plan.plan, patch=_injected)


def _without_policy(request: wire.Request[views.Pod], pod: views.Pod, known: facts.Facts) -> answer.Answer:
    """Before a first policy was read, a labelled pod cannot be served and must not start half-equipped."""
    if not opt_in.may_opt_in(pod, known.namespace_labels):
        return _unseen(request, pod) if opt_in.may_be_undecided(pod, known) else _allowed(request)
    where = plan.title(pod, request.namespace)
    message = (
        f"Pod {where}: railwright has no policy in force yet: it may still be starting, so try again in a moment; if "
        "that does not help, its policy is missing or wrong, and the operator sees why with `railwright check`"
    )
    return _refused(request, pod, model.Refusal("", "no-policy", message))


def _unseen(request: wire.Request[views.Pod], pod: views.Pod) -> answer.Answer:
    """A namespace so new that nobody can say whether it opts in; whoever makes the pod tries again in a moment."""
    message = (
        f"Pod {plan.title(pod, request.namespace)}: the labels of namespace {request.namespace} are not known yet, so "
        f"that it is not known whether label {names.FABRIC} there opts the pod in; try again, or set it on the pod"
    )
    return _refused(request, pod, model.Refusal("", "namespace-unknown", message))


def _refused(request: wire.Request[views.Pod], pod: views.Pod, refusal: model.Refusal) -> answer.Answer:
    verdict = wire.Verdict(
        allowed=False,
        code=_FORBIDDEN,
        message=model.bounded(refusal.message, _MAX_MESSAGE),
        audit={"fabric": refusal.fabric or _UNKNOWN, "role": refusal.role or _UNKNOWN, "refused": refusal.reason},
    )
    # without the pod's name, so that all pods of one owner are one Event
    sentence = refusal.message.removeprefix(f"Pod {plan.title(pod, request.namespace)}: ")
    return answer.Answer(
        body=wire.write(request.uid, verdict),
        outcome=answer.REFUSED,
        fabric=refusal.fabric or _UNKNOWN,
        role=refusal.role or _UNKNOWN,
        reason=refusal.reason,
        dry_run=bool(request.dry_run),
        notice=_notice(request, pod, (sentence,), refused=True),
    )


def _notice(
    request: wire.Request[views.Pod], pod: views.Pod, sentences: tuple[str, ...], *, refused: bool = False
) -> answer.Notice | None:
    """What the pod's owner is told; nothing on a dry run, which must leave no trace."""
    owner = pod.metadata.controller
    if owner is None or request.dry_run:
        return None
    told = tuple(model.bounded(sentence, _MAX_MESSAGE) for sentence in sentences[: wire.MAX_WARNINGS])
    return answer.Notice(namespace=request.namespace, owner=owner, refused=refused, sentences=told)


def _allowed(request: wire.Request[views.Pod], warnings: tuple[str, ...] = ()) -> answer.Answer:
    body = wire.write(request.uid, wire.Verdict(warnings=warnings))
    return answer.Answer(body=body, outcome=answer.ALLOWED, warnings=len(warnings), dry_run=bool(request.dry_run))
