"""The variables of a fabric, made once a policy and looked up for each pod.

Owns the order (literals, then what is derived) and that literals beat derived values. A cache of pure results: with
another policy document it starts anew.
"""

from collections.abc import Sequence

from fabric.nccl import derive
from fabric.nccl import model as nccl
from fabric.policy import model as policies

HCA = "NCCL_IB_HCA"
_KEPT = 1024  # results; a policy has few fabrics, but a pod's rails may be any subset
_POLICIES = 2  # the one in force, and the one that a test or a comparison uses beside it

Variables = tuple[nccl.Variable, ...]
_Key = tuple[str, tuple[str, ...], tuple[str, ...] | None, bool]


class Tables:
    """What the variables of pods are under one policy document."""

    def __init__(self, document: policies.FabricPolicy) -> None:
        self.document = document
        self._ranks: dict[_Key, Variables] = {}

    def rank(
        self, name: str, rails: Sequence[policies.Rail], devices: tuple[str, ...] | None, *, host_network: bool
    ) -> Variables:
        """Literals and derived variables of a rank."""
        key = (name, tuple(rail.name for rail in rails), devices, host_network)
        found = self._ranks.get(key)
        if found is None:
            if len(self._ranks) >= _KEPT:
                self._ranks.clear()
            fabric = self.document.fabrics[name]
            derived = derive.derive(fabric, rails, devices, self.document.primary_interface, host_network)
            literals = literals_of(fabric, name)
            found = literals + tuple(each for each in derived if each.name not in fabric.env)
            self._ranks[key] = found
        return found


def literals_of(fabric: policies.Fabric, name: str) -> Variables:
    """The policy's own variables."""
    reason = "the policy says so"
    return tuple(nccl.Variable(key, value, reason, f"fabrics.{name}.env") for key, value in fabric.env.items())


_cache: list[Tables] = []


def of(document: policies.FabricPolicy) -> Tables:
    """The tables of a document; the same ones while the document is the same object."""
    for tables in _cache:
        if tables.document is document:
            return tables
    tables = Tables(document)
    _cache.insert(0, tables)
    del _cache[_POLICIES:]
    return tables
