"""The webhook's application: maps paths to handlers, and counts their answers.

Passes each handler the policy in force and the caches. A pod's review is answered without waiting for anything.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from railwright.fabric import views
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import shortcomings
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import fabric_users
from railwright.serving import application, metrics, turns
from webhook import pods, policy_validation, response_cache, reviews, workloads
from webhook import state as states

GetPolicy = Callable[[], policies.Policy | None]
EventSink = Callable[[reviews.EventRecord], None]
WriteTemplates = Callable[[Sequence[views.Pod]], Awaitable[Sequence[reason.Reason]]]
ListPods = Callable[[Sequence[str]], Awaitable[fabric_users.LabelledPods | None]]
"""Lists the pods with one of some values of the label; None if that is not possible now."""
MayReadTemplates = Callable[[], Awaitable[bool]]


def post_none(_event: reviews.EventRecord) -> None:
    """Post no Event, without an API server."""


async def list_none(_labels: Sequence[str]) -> None:
    """List no pods, without an API server."""


async def assume_rights() -> bool:
    """Take the right to read claim templates as given, without an API server."""
    return True


_STATE = web.AppKey("state", states.State)
_GET_POLICY = web.AppKey[GetPolicy]("get_policy")
_POST_EVENT = web.AppKey[EventSink]("post_event")
_WRITE_TEMPLATES = web.AppKey[WriteTemplates | None]("write_templates")
_LIST_PODS = web.AppKey[ListPods]("list_pods")
_MAY_READ_TEMPLATES = web.AppKey[MayReadTemplates]("may_read_templates")
_COUNTERS = web.AppKey("counters", metrics.WebhookMetrics)
_CACHE = web.AppKey("cache", response_cache.ResponseCache)


def build_application(  # noqa: PLR0913, PLR0917 - what the handlers read
    state: states.State,
    get_policy: GetPolicy,
    counters: metrics.WebhookMetrics,
    post_event: EventSink = post_none,
    write_templates: WriteTemplates | None = None,
    list_pods: ListPods = list_none,
    may_read_templates: MayReadTemplates = assume_rights,
    *,
    max_body: int,
) -> web.Application:
    """Return the application. `post_event` must return at once.

    `write_templates` writes the claim templates of pods, and returns why some are not written. `may_read_templates`
    tells whether this server has the right to read them.
    """
    rules = application.Rules(max_body=max_body, counters=counters, malformed=(reviews.MalformedError,))
    app = application.build(
        rules,
        [
            web.post("/mutate/pods", mutate_pods),
            web.post("/mutate/workloads", mutate_workloads),
            web.post("/validate/policy", validate_policy),
        ],
    )
    app[_STATE], app[_GET_POLICY], app[_POST_EVENT], app[_COUNTERS] = state, get_policy, post_event, counters
    app[_WRITE_TEMPLATES], app[_LIST_PODS] = write_templates, list_pods
    app[_MAY_READ_TEMPLATES] = may_read_templates
    app[_CACHE] = response_cache.ResponseCache()
    return app


async def mutate_pods(request: web.Request) -> web.Response:
    """Handle POST /mutate/pods."""
    app = request.app
    return _reply(app, pods.handle(request[application.BODY], app[_GET_POLICY](), app[_STATE].build_facts, app[_CACHE]))


async def mutate_workloads(request: web.Request) -> web.Response:
    """Handle POST /mutate/workloads."""
    app, body = request.app, request[application.BODY]
    answer = await turns.run(workloads.handle(body, app[_GET_POLICY](), app[_STATE].build_facts))
    write = app[_WRITE_TEMPLATES]
    if answer.claimants and write is not None and (unwritten := await write(answer.claimants)):
        answer = reviews.add_warnings(answer, unwritten)
    return _reply(app, answer)


async def validate_policy(request: web.Request) -> web.Response:
    """Handle POST /validate/policy."""
    app, state, current = request.app, request.app[_STATE], request.app[_GET_POLICY]()
    nodes = state.nodes
    cluster = shortcomings.Cluster(state.networks.by_key, state.subnets.by_key, nodes.offered, nodes.devices)
    answer, document = policy_validation.handle(request[application.BODY], cluster)
    lost = fabric_users.list_lost(current.document, document) if current is not None and document is not None else ()
    if lost:
        users = fabric_users.Users(await app[_LIST_PODS](lost), state.namespaces.by_key or {})
        answer = reviews.add_warnings(answer, fabric_users.describe(lost, users))
    if document is not None and document.needs_claim_templates and not await app[_MAY_READ_TEMPLATES]():
        answer = reviews.add_warnings(answer, [*shortcomings.find_missing_rights(document)])
    return _reply(app, answer)


def _reply(app: web.Application, answer: reviews.Answer) -> web.Response:
    """Return an answer as an HTTP response; count it, and post its Events.

    Dry runs are not counted: people make them to try a manifest.
    """
    for event in answer.events:
        app[_POST_EVENT](event)
    if not answer.dry_run:
        _count(answer, app[_COUNTERS])
    return application.reply(answer.body, outcome=answer.outcome)


def _count(answer: reviews.Answer, counters: metrics.WebhookMetrics) -> None:
    if answer.reason:
        counters.webhook_refusals.labels(answer.fabric, answer.reason).inc()
    if answer.fabric and not answer.kind:
        counters.webhook_injections.labels(answer.fabric, answer.role, answer.outcome).inc()
    for warning in answer.warnings:
        counters.webhook_warnings.labels(warning.code).inc()
