"""Defines the explanation of one node for one pod, as in `/explain` and in what the dashboard reads."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.reasons import reason as reasons


class Term(msgspec.Struct, frozen=True):
    """A term of a node's score, and why it has this value."""

    value: float  # 0..1
    message: str


class NodeExplanation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The present score of a node for a pod, and what the node lacks."""

    node: str
    score: float  # 0..100
    leaf: str = ""
    rejection: reasons.Reason | None = None  # why the pod may not go there
    fault: reasons.Reason | None = None  # why the node comes last
    reason: reasons.Reason | None = None  # why it has no room although the devices are free, or why it is not scored
    fits: bool = True  # False: too few of the requested devices are free, or `reason` says why there is no room
    rails: Sequence[reasons.Reason] = ()  # missing devices of rails, with the pods that use them
    short: Sequence[reasons.Reason] = ()  # other missing devices
    degradations: Sequence[reasons.Reason] = ()  # why it has less than full bandwidth
    broken: Sequence[reasons.Reason] = ()  # further broken rails
    terms: Mapping[str, Term] = {}  # of the score, by name

    @property
    def has_room(self) -> bool:
        """True if the node is not refused, and has what the pod requests."""
        return self.rejection is None and self.fault is None and self.fits
