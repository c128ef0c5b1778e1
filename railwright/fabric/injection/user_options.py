"""Reads the user's options from a pod's annotations: mutators to skip, and the delivery of NCCL settings.

The rules are in docs/interface.md 1.1 and 1.3. `context` and `targets` read the annotations for rails and containers.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.reasons import reason, rejections
from railwright.fabric.reasons.codes import AdmissionCode

SKIPPED = reason.make(AdmissionCode.SKIPPED_BY_ANNOTATION)

_DELIVERIES = ("env", "file")

Delivery = Literal["env", "file", "both"]


class UserOptions(msgspec.Struct, frozen=True):
    """The user's options. `delivery` None leaves the choice to the policy."""

    skip: frozenset[str] = frozenset()
    delivery: Delivery | None = None


_DEFAULTS = UserOptions()


def read(pod: views.Pod, skippable: Sequence[str]) -> UserOptions:
    """Return the options of a pod. `skippable` are the words of annotation `skip`. Raises RefusedError for others."""
    annotations = pod.metadata.annotations
    if names.PLACEMENT in annotations:
        raise rejections.RefusedError(
            "placement",
            f"annotation {names.PLACEMENT} is written by railwright at binding and may not be set before; remove it",
        )
    if names.SKIP not in annotations and names.DELIVERY not in annotations:
        return _DEFAULTS
    return UserOptions(
        _parse_skip(annotations.get(names.SKIP), skippable), _parse_delivery(annotations.get(names.DELIVERY))
    )


def _parse_skip(annotation: str | None, skippable: Sequence[str]) -> frozenset[str]:
    if annotation is None:
        return frozenset()
    words = [word.strip() for word in annotation.split(",")]
    for word in words:
        if word not in skippable:
            raise rejections.RefusedError(
                "annotation",
                f"annotation {names.SKIP} {text.quote(annotation)}: {text.quote(word)} is not one of "
                f"{', '.join(skippable)}",
            )
    return frozenset(words)


def _parse_delivery(annotation: str | None) -> Delivery | None:
    if annotation is None:
        return None
    word = annotation.strip()
    if word == "env":
        return "env"
    if word == "file":
        return "file"
    raise rejections.RefusedError(
        "annotation",
        f"annotation {names.DELIVERY} {text.quote(annotation)} is not one of {', '.join(_DELIVERIES)}",
    )
