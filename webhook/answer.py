"""What a handler hands back: the bytes for the API server, and what happened, for metrics and logs.

Owns the words of outcomes. Counting and logging happen after the answer, elsewhere.
"""

import msgspec

from railwright.fabric import views

ALLOWED, PATCHED, REFUSED = "allowed", "patched", "refused"


class Notice(msgspec.Struct, frozen=True):
    """What others than the caller should hear: the sentences of one pod, for the object that makes such pods."""

    namespace: str
    owner: views.OwnerReference
    refused: bool
    sentences: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True):
    """One review answered."""

    body: bytes
    outcome: str
    kind: str = ""  # of the workload; "" for anything else
    fabric: str = ""  # "" where none is concerned
    role: str = ""
    reason: str = ""  # of a refusal, a short word
    operations: int = 0
    warnings: int = 0
    dry_run: bool = False
    notice: Notice | None = None  # never on a dry run
