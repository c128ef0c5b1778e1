"""Maps the webhook's paths to handlers, and counts their answers.

Passes each handler the policy in force and the caches. A pod's review is answered without an await.
"""

from collections.abc import Callable, Sequence

from railwright.fabric import views
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason, rendering
from railwright.serving import metrics, routes, turns
from webhook import bindings, extender_questions, pods, policy_validation, response_cache, reviews, workloads
from webhook import state as states

_MALFORMED = (reviews.MalformedError,)
GetPolicy = Callable[[], policies.Policy | None]
EventSink = Callable[[reviews.EventRecord], None]


def build_routes(
    state: states.State,
    get_policy: GetPolicy,
    counters: metrics.Metrics,
    post_event: EventSink = lambda _: None,
    *,
    extender: extender_questions.Extender | None = None,
) -> Sequence[routes.Route]:
    """Return all routes. `post_event` must return at once.

    `extender` says whether a pod that is bound was placed without it; None if there is none.
    """
    cache, validator = response_cache.ResponseCache(), policy_validation.Validator()

    def mutate_pods(call: routes.Call) -> routes.Reply:
        reply = pods.handle(call.body, get_policy(), state.build_facts, cache)
        if not reply.fabric and not reply.dry_run:
            counters.webhook_skipped.inc()
        for event in reply.events:
            post_event(event)
        return _count(reply, counters)

    async def mutate_workloads(call: routes.Call) -> routes.Reply:
        steps = workloads.handle(call.body, get_policy(), state.build_facts, state.build_topology_facts())
        outcome = turns.run(steps)
        reply = outcome if isinstance(outcome, reviews.Answer) else await outcome
        return _count(reply, counters)

    async def mutate_bindings(call: routes.Call) -> routes.Reply:
        request = bindings.read(call.body)
        problem = await bindings.wait(request, state, extender)
        reply = bindings.handle(request, get_policy(), state, problem)
        for event in reply.events:
            post_event(event)
        return _count(reply, counters)

    async def validate_policy(call: routes.Call) -> routes.Reply:
        networks, offered = state.networks.by_key, state.nodes.offered  # only read, so no copy is needed
        timeout = call.query.get("timeout", "")
        reply = await validator.handle(call.body, timeout, networks, offered)
        return _count(reply, counters)

    return [
        routes.Route("/mutate/pods", mutate_pods, malformed=_MALFORMED, sheds=True),
        routes.Route("/mutate/workloads", mutate_workloads, malformed=_MALFORMED, sheds=True),
        routes.Route("/mutate/bindings", mutate_bindings, malformed=_MALFORMED, sheds=True),
        routes.Route("/validate/policy", validate_policy, malformed=_MALFORMED),
    ]


def build_late_report(counters: metrics.Metrics, post_event: EventSink) -> extender_questions.Report:
    """Return a function that posts and counts a problem of a pod that became known after its binding."""

    def report(pod: views.Pod, problem: reason.Reason) -> None:
        post_event(bindings.build_gang_event(pod, rendering.describe_all((problem,))))
        counters.webhook_warnings.labels(problem.code).inc()

    return report


def _count(reply: reviews.Answer, counters: metrics.Metrics) -> routes.Reply:
    """Count an answer and return it as an HTTP reply. Dry runs are not counted: people make them to try a manifest."""
    if reply.dry_run:
        return routes.Reply(reply.body, outcome=reply.outcome)
    if reply.reason:
        counters.webhook_refusals.labels(reply.fabric, reply.reason).inc()
    if reply.kind:
        counters.webhook_workloads.labels(reply.kind, reply.outcome).inc()
    elif reply.fabric:
        counters.count_injection(reply.fabric, reply.role, reply.outcome)
    if reply.operations:
        counters.webhook_patch_operations.observe(reply.operations)
    for warning in reply.warnings:
        counters.webhook_warnings.labels(warning.code).inc()
    return routes.Reply(reply.body, outcome=reply.outcome)
