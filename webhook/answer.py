"""The result of a handler: the bytes for the API server, and what metrics, logs and Events report about them.

Defines the outcomes. Counting and logging happen after the response, in other modules.
"""

import msgspec

from railwright.fabric import views

ALLOWED, PATCHED, REFUSED = "allowed", "patched", "refused"
WOULD_PATCH, WOULD_REFUSE = "would-patch", "would-refuse"  # in audit mode, in which the object is admitted unchanged


class EventRecord(msgspec.Struct, frozen=True):
    """Messages about one pod, to be posted as Events on the object that creates such pods."""

    namespace: str
    owner: views.OwnerReference
    rejected: bool
    messages: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True):
    """The answer to one review."""

    body: bytes
    outcome: str
    kind: str = ""  # of the workload; "" for any other object
    fabric: str = ""  # "" if no fabric is involved
    role: str = ""
    reason: str = ""  # reason code of a rejection
    operations: int = 0
    warnings: tuple[str, ...] = ()  # their codes
    dry_run: bool = False
    events: tuple[EventRecord, ...] = ()  # none on a dry run
