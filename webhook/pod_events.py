"""Posts Events about pods on the object that creates them, because a rejected pod is never stored.

Defines the reasons of the Events, and which records become Events. A pod without a controller gets no Event: its
creator has read the same message in the response. A success without warnings gets no Event either.
"""

from collections.abc import Callable

from railwright.cluster import events
from webhook import answer

REFUSED, WARNED = "FabricRefused", "FabricWarning"  # stable: users filter by them


def build_sink(poster: events.Events | None) -> Callable[[answer.EventRecord], None]:
    """Return a function that queues one Event for each message, or does nothing without an API server."""

    def post(record: answer.EventRecord) -> None:
        if poster is None:
            return
        owner = record.owner
        involved = events.Involved(
            kind=owner.kind,
            api_version=owner.api_version,
            namespace=record.namespace,
            name=owner.name,
            uid=owner.uid,
        )
        reason = REFUSED if record.rejected else WARNED
        for message in record.messages:
            poster.post(involved, warning=True, reason=reason, message=message)

    return post
