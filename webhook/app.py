"""The webhook's paths, each onto one handler; and what is counted of an answer.

Owns the meeting of handlers with the policy in force and the caches. Between body and answer of a pod stands no await.
"""

from collections.abc import Callable, Sequence

from railwright.fabric.policy import model as policies
from railwright.serving import metrics, routes
from railwright.serving import tracing as traces
from webhook import answer, bindings, pods, traced, wire, workloads
from webhook import memory as memories
from webhook import policies as validation
from webhook import state as states

_MALFORMED = (wire.MalformedError,)
PolicyOf = Callable[[], policies.Policy | None]
Tell = Callable[[answer.Notice], None]


def offered(
    state: states.State,
    policy_of: PolicyOf,
    counters: metrics.Metrics,
    tell: Tell = lambda _: None,
    tracing: traces.Tracing = traces.OFF,
) -> Sequence[routes.Route]:
    """All routes. `tell` hears what is to be said beyond the answers, and must return at once."""
    memory, steps, checking = memories.Memory(), traced.steps(tracing), validation.Validation()
    admit = tracing.noted(pods.handle, traced.of_answer)
    equip = tracing.noted(workloads.handle, traced.of_answer)
    tell = tracing.step("events", tell)

    def mutate_pods(call: routes.Call) -> routes.Reply:
        given = admit(call.body, policy_of(), state.facts, memory, steps)
        if not given.fabric:
            counters.webhook_skipped.inc()
        if given.notice is not None:
            tell(given.notice)
        return _reply(given, counters)

    def mutate_workloads(call: routes.Call) -> routes.Reply:
        return _reply(equip(call.body, policy_of(), state.facts), counters)

    async def mutate_bindings(call: routes.Call) -> routes.Reply:
        request = bindings.read(call.body)
        if bindings.concerns_us(request) and not state.pods.knows(*bindings.pod_of(request)):
            await state.pods.wait(*bindings.pod_of(request), seconds=bindings.WAIT_SECONDS)
        return _reply(bindings.handle(request, policy_of(), state), counters)

    async def validate_policy(call: routes.Call) -> routes.Reply:
        networks, offered = state.networks.resources, state.nodes.offered  # read only, so no copy is needed
        return _reply(await checking.handle(call.body, call.query.get("timeout", ""), networks, offered), counters)

    table = [
        routes.Route("/mutate/pods", mutate_pods, malformed=_MALFORMED, immediate=True, sheds=True),
        routes.Route("/mutate/workloads", mutate_workloads, malformed=_MALFORMED, sheds=True),
        routes.Route("/mutate/bindings", mutate_bindings, malformed=_MALFORMED, sheds=True),
        routes.Route("/validate/policy", validate_policy, malformed=_MALFORMED),
    ]
    return tracing.routes(table)


def _reply(given: answer.Answer, counters: metrics.Metrics) -> routes.Reply:
    if given.reason:
        counters.webhook_refusals.labels(given.fabric, given.reason).inc()
    if given.kind:
        counters.webhook_workloads.labels(given.kind, given.outcome).inc()
    elif given.fabric:
        counters.injected(given.fabric, given.role, given.outcome)
    if given.operations:
        counters.webhook_patch_operations.observe(given.operations)
    if given.warnings:
        counters.webhook_warnings.inc(given.warnings)
    return routes.Reply(given.body, outcome=given.outcome)
