"""Defines what every reason code has: its public name, the question that it answers, its meaning and a fix."""

import enum


class Group(enum.StrEnum):
    """The question that a code answers."""

    FILTER = "Why a node is filtered"
    NODE = "Other disadvantages of a node"
    GANG = "Why a gang does not fit, or its placement is not better"
    SCORE = "Why a node has its score"
    ADMISSION = "What a warning of admission reports, or why the record has an entry in `skipped`"
    VARIABLE = "Why a pod has a variable"


class ReasonCode(enum.StrEnum):
    """Base of the enumerations of codes. The value of a code is its public name."""

    group: Group
    meaning: str
    fix: str  # "" if there is nothing to fix
