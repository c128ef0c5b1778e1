"""Answers to earlier reviews, for pods that are alike: the mates of a gang cost a look-up instead of a plan.

Owns when an answer may be used again: for the same policy, the same networks and nodes, and an equal key of
`railwright.fabric.injection.likeness`. Refusals are not kept: they name the pod.
"""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import facts, likeness
from railwright.fabric.policy import model as policies

_KEPT = 256  # answers of a few KiB each: as many gangs, roles and sizes as are started within minutes


class Kept(msgspec.Struct, frozen=True):
    """An answer but for the request's uid, and what is counted and told of it."""

    response: bytes  # the members of `response` behind the uid
    outcome: str
    fabric: str
    role: str
    operations: int
    warnings: tuple[str, ...]


class Memory:
    """Answers under the policy and the facts in force. One event loop owns it."""

    def __init__(self) -> None:
        self._policy: policies.Policy | None = None
        self._version: int | None = None
        self._ranks: frozenset[str] = frozenset()
        self._kept: dict[bytes, Kept] = {}

    def key(self, pod: views.Pod, policy: policies.Policy, known: facts.Facts) -> bytes | None:
        """The pod's key, None for one that is not remembered. What was kept under another policy or facts is gone."""
        if known.version is None:
            return None
        if policy is not self._policy or known.version != self._version:
            self._kept.clear()
            self._policy, self._version = policy, known.version
            self._ranks = likeness.ranks(policy.document)
        return likeness.key(pod, known, self._ranks)

    def find(self, key: bytes) -> Kept | None:
        """The answer to an earlier pod of this key."""
        return self._kept.get(key)

    def keep(self, key: bytes, answer: Kept) -> None:
        """Remember an answer."""
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = answer
