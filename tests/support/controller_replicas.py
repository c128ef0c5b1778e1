"""A replica of the webhook for tests of its controllers: caches that the test fills, and the Events that are posted."""

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import events
from railwright.fabric import views
from railwright.fabric.policy import model
from railwright.serving import metrics
from webhook import claim_templates
from webhook import state as states


class Replica:
    """Caches, policy and Events of one replica: `posted` has kind and reason of each Event, `messages` its text."""

    def __init__(self, client: clients.Client, policy: model.Policy) -> None:
        self.client, self.policy = client, policy
        self.state, self.counters = states.State(), metrics.WebhookMetrics()
        self.posted: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.controller = claim_templates.ClaimTemplateController(
            client, self.state, self, get_policy=lambda: self.policy, get_problem=lambda: ""
        )

    def post(self, involved: events.Involved, *, warning: bool, reason: str, message: str) -> None:
        assert warning
        self.posted.append((involved.kind, reason))
        self.messages.append(message)

    def observe(self, *trees: dict) -> None:
        """Pass these pods to the controllers."""
        for tree in trees:
            pod = msgspec.convert(tree, views.Pod)
            self.state.claiming_pods.upsert(pod)
