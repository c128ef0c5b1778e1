"""Explains the result of one node: score, terms with their reasons, missing rails, and the pods that use them.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, topology
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import locality, score_term
from railwright.fabric.placement.state import device_holders
from railwright.fabric.reasons import reason

MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


class NodeRow(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float
    evaluation: node_evaluation.NodeEvaluation | None  # None: the cache does not contain the node
    leaf: topology.Domain
    holders: tuple[device_holders.Holder, ...]  # pods of the node, if it has too few free devices of a rail


class PoolUsage(msgspec.Struct, frozen=True):
    """Usage of one device pool on a node. Amounts in milli-units."""

    need: intent.Need
    free: int
    allocatable: int
    is_sufficient: bool
    holders: tuple[str, ...]  # namespace/name of pods that use it, if not sufficient; at most MAX_HOLDERS_NAMED + 1


class NodeExplanation(msgspec.Struct, frozen=True):
    """The explanation of one node."""

    node: str
    is_known: bool  # False: the cache does not contain the node; it is feasible and scores 0 (docs/interface.md 7.5)
    score: float  # 0..100
    refusal: reason.Reason | None  # why the node is filtered; None if the pod fits
    is_unresolvable: bool  # the pod would not fit even if all other pods left the node
    terms: Mapping[str, score_term.TermScore]  # by name
    rails: tuple[PoolUsage, ...]


class Explainer(msgspec.Struct, frozen=True):
    """Builds the explanations of one decision."""

    plan: planner.Plan
    gang: locality.GangSummary
    terms: Sequence[score_term.ScoreTerm]  # the weighted terms except locality

    def explain(self, row: NodeRow) -> NodeExplanation:
        """Return the explanation of a node."""
        evaluation = row.evaluation
        if evaluation is None:
            return NodeExplanation(
                row.node, is_known=False, score=0.0, refusal=None, is_unresolvable=False, terms={}, rails=()
            )
        return NodeExplanation(
            node=row.node,
            is_known=True,
            score=row.score,
            refusal=evaluation.refusal,
            is_unresolvable=evaluation.is_unresolvable,
            terms={} if evaluation.refusal else self._explain_terms(row.leaf, evaluation),
            rails=list_pool_usage(row),
        )

    def _explain_terms(
        self, leaf: topology.Domain, evaluation: node_evaluation.NodeEvaluation
    ) -> dict[str, score_term.TermScore]:
        locality_terms = [locality.LocalityTerm(leaf, self.gang, self.plan)] if self.gang.has_domains else []
        return {term.name: term.score(evaluation) for term in (*locality_terms, *self.terms)}


def list_pool_usage(row: NodeRow) -> tuple[PoolUsage, ...]:
    """Return the device pools of a row, with the pods that use the insufficient ones."""
    return tuple(
        PoolUsage(
            need=pool.need,
            free=pool.free,
            allocatable=pool.allocatable,
            is_sufficient=pool.is_sufficient,
            holders=() if pool.is_sufficient else _list_holders(row.holders, pool.need.resource),
        )
        for pool in (row.evaluation.pools if row.evaluation else ())
    )


def _list_holders(holders: Sequence[device_holders.Holder], resource: str) -> tuple[str, ...]:
    keys = dict.fromkeys(holder.key for holder in holders if holder.requests.get(resource, 0) > 0)
    return tuple(keys)[: MAX_HOLDERS_NAMED + 1]
