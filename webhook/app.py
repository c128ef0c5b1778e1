"""The webhook's application: maps paths to handlers, and counts their answers.

Passes each handler the policy in force and the caches. A pod's review is answered without any await.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from aiohttp import web

from railwright.cluster import client as clients
from railwright.cluster import errors, events
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import fabric_users
from railwright.serving import application, metrics
from webhook import claim_templates, object_events, pods, policy_validation, response_cache, reviews, workloads
from webhook import state as states

_LIST_SECONDS = 2.0  # of the five that the API server waits for a review
_MAX_BODY = 7 << 20  # bytes: two objects of the API server's 3 MiB limit, and 1 MiB for the review around them


class ApiServer(NamedTuple):
    """A client of the API server, and the two objects that write Events and claim templates with it."""

    client: clients.Client
    poster: events.Events
    controller: claim_templates.ClaimTemplateController


class Webhook:
    """The handlers, one for each path, and their inputs. `api` is None if a file replaces the cluster."""

    def __init__(
        self,
        state: states.State,
        get_policy: Callable[[], policies.Policy | None],
        counters: metrics.WebhookMetrics,
        api: ApiServer | None = None,
    ) -> None:
        self._state, self._get_policy, self._counters, self._api = state, get_policy, counters, api
        self._cache = response_cache.ResponseCache()

    def build_application(self) -> web.Application:
        """Return the web application with all paths of the webhook."""
        rules = application.Rules(max_body=_MAX_BODY, counters=self._counters, malformed=(reviews.MalformedError,))
        routes = [
            web.post("/mutate/pods", self.mutate_pods),
            web.post("/mutate/workloads", self.mutate_workloads),
            web.post("/validate/policy", self.validate_policy),
        ]
        return application.build_application(rules, routes)

    async def mutate_pods(self, request: web.Request) -> web.Response:
        """Answer a review of a pod."""
        body = request[application.BODY]
        return self._build_response(pods.answer_review(body, self._get_policy(), self._state.build_facts, self._cache))

    async def mutate_workloads(self, request: web.Request) -> web.Response:
        """Answer a review of a workload, after writing the claim templates that its pods will name."""
        body = request[application.BODY]
        answer = await workloads.answer_review(body, self._get_policy(), self._state.build_facts)
        if answer.claimants and self._api is not None:
            unwritten = await self._api.controller.write_templates_of_workload(answer.namespace, answer.claimants)
            answer = msgspec.structs.replace(answer, warnings=(*answer.warnings, *unwritten))
        return self._build_response(answer)

    async def validate_policy(self, request: web.Request) -> web.Response:
        """Answer a review of a policy, with a warning about each removed fabric that pods use."""
        current = self._get_policy()
        answer, document = policy_validation.answer_review(request[application.BODY], self._state.cluster)
        if document is None or current is None:
            return self._build_response(answer)
        if lost := fabric_users.list_removed_labels(current.document, document):
            users = fabric_users.Users(await self._list_labelled_pods(lost), self._state.namespaces.by_key or {})
            in_use = fabric_users.explain_uses(lost, users)
            answer = msgspec.structs.replace(answer, warnings=(*answer.warnings, *in_use))
        return self._build_response(answer)

    async def _list_labelled_pods(self, labels: Sequence[str]) -> fabric_users.LabelledPods | None:
        """Return the pods with these values of the fabric label; None if the API server does not list them in time."""
        if self._api is None:
            return None
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                return await policy_validation.list_labelled_pods(self._api.client, labels)
        except (errors.ClusterError, TimeoutError):
            return None

    def _build_response(self, answer: reviews.Answer) -> web.Response:
        """Return an answer as an HTTP response, after counting it and posting its Events.

        Dry runs are not counted: people make them to try a manifest.
        """
        if self._api is not None:
            object_events.post_admission_events(self._api.poster, answer)
        if not answer.dry_run:
            if answer.reason:
                self._counters.webhook_refusals.labels(answer.fabric, answer.reason).inc()
            if answer.role:
                self._counters.get_injections(answer.fabric, answer.role, answer.outcome).inc()
            for warning in answer.warnings:
                self._counters.webhook_warnings.labels(warning.code).inc()
        return application.build_response(answer.body, outcome=answer.outcome)
