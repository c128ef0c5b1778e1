"""Defines the explanation of one node for one pod, as `/explain` returns it."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.reasons import reason


class Term(msgspec.Struct, frozen=True):
    """A term of a node's score, and why it has this value."""

    value: float  # 0..1
    message: str


class NodeExplanation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The present score of a node for a pod, and what the node lacks."""

    node: str
    score: float  # 0..100
    leaf: str = ""
    rejection: reason.Reason | None = None  # why the node is refused
    fits: bool = True  # False: refused, unknown, with a broken rail, or without room for what the pod requests
    reasons: Sequence[reason.Reason] = ()  # what it lacks, with the pods that use it, then why it is slower
    terms: Mapping[str, Term] = {}  # of the score, by name; {} if a rail is broken
