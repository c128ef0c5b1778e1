"""Defines the result of a score term for one node."""

from typing import NamedTuple

from railwright.fabric.reasons import reason


class TermScore(NamedTuple):
    """A value and why the node has it."""

    value: float  # 0..1
    reason: reason.Reason
