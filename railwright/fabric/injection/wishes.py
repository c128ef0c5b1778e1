"""What a user asks of us by annotations: concerns to leave out, and how settings travel (ruling 1).

Owns `skip` and `delivery`, and the refusal of annotations only we may write. Rails and containers have files of
their own.
"""

from typing import Literal

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import model

CONCERNS = ("networks", "devices", "mounts", "security", "env", "preflight")
_DELIVERIES = ("env", "file")

Delivery = Literal["env", "file", "both"]


class Wishes(msgspec.Struct, frozen=True):
    """The user's say; `delivery` None leaves it to the policy."""

    skip: frozenset[str] = frozenset()
    delivery: Delivery | None = None


_NONE = Wishes()


def read(pod: views.Pod) -> Wishes:
    """The wishes of a pod. Raises RefusedError for a word we do not know."""
    annotations = pod.metadata.annotations
    if names.PLACEMENT in annotations:
        raise model.RefusedError(
            "placement",
            f"annotation {names.PLACEMENT} is written when a pod is bound and may not be set before; remove it",
        )
    if names.SKIP not in annotations and names.DELIVERY not in annotations:
        return _NONE
    return Wishes(_skip(annotations.get(names.SKIP)), _delivery(annotations.get(names.DELIVERY)))


def _skip(written: str | None) -> frozenset[str]:
    if written is None:
        return frozenset()
    words = [word.strip() for word in written.split(",")]
    for word in words:
        if word not in CONCERNS:
            raise model.RefusedError(
                "annotation",
                f"annotation {names.SKIP} {model.quoted(written)}: {model.quoted(word)} is not one of "
                f"{model.listed(CONCERNS)}",
            )
    return frozenset(words)


def _delivery(written: str | None) -> Delivery | None:
    if written is None:
        return None
    word = written.strip()
    if word == "env":
        return "env"
    if word == "file":
        return "file"
    raise model.RefusedError(
        "annotation",
        f"annotation {names.DELIVERY} {model.quoted(written)} is not one of {model.listed(_DELIVERIES)}",
    )
