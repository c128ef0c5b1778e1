"""Events about pods, on the object that makes them: a refused pod is never stored, and its owner is where people look.

Owns the reason words and which notices become Events. A pod nobody owns gets none: whoever created it has read the
same sentence in the answer, and there is no stored object to hang it on. A plain success gets none either.
"""

from collections.abc import Callable

from railwright.cluster import events
from webhook import answer

REFUSED, WARNED = "FabricRefused", "FabricWarning"  # stable: people filter by them


def telling(posting: events.Events | None) -> Callable[[answer.Notice], None]:
    """Turns notices into queued Events, an Event a sentence; into nothing where there is no cluster to tell."""

    def tell(notice: answer.Notice) -> None:
        if posting is None:
            return
        owner = notice.owner
        about = events.Involved(
            kind=owner.kind,
            api_version=owner.api_version,
            namespace=notice.namespace,
            name=owner.name,
            uid=owner.uid,
        )
        reason = REFUSED if notice.refused else WARNED
        for sentence in notice.sentences:
            posting.post(about, warning=True, reason=reason, message=sentence)

    return tell
