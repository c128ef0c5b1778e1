"""Answers kube-scheduler: filter and prioritize. Decodes, asks the decider, encodes.

The protocol is k8s.io/kube-scheduler/extender/v1. Its Go types have no JSON tags, so the keys are spelled as in Go.
kube-scheduler sends node names only, and announces nothing (`decider.ScoredPods`).

For a pod of a gang that fits, filter returns the offered nodes in the pod's target leaf, at least one. kube-scheduler
has found them feasible, and its plugins choose among them. All nodes are returned

- if no node of that leaf is offered, or if all of them have a taint PreferNoSchedule,
- if the pod's author states preferences, which kube-scheduler's own plugins score,
- once if the pod comes back and nodes of its previous leaf are offered again, because a later plugin or extender
  refused them. A pod that waited for room is not offered these nodes.

For a pod of a segment, filter always returns a single NVLink domain, so that the other pods of the segment are kept in
it before the binding is seen. If the pod comes back, it gets another domain.

Prioritize reuses filter's decision. Filter refuses only two kinds of nodes, each with a reason (`engine`).
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender import decider, decoding
from railwright.fabric import bounded_cache, scheduling_views, topology
from railwright.fabric.placement import decisions, scheduling_request
from railwright.fabric.placement.nodes import node_index, score_terms
from railwright.fabric.reasons import reason

# --- the protocol ---------------------------------------------------------------------------------------------

_ABSENT = (b"", b"null")
_PREFERRED, _SOFT = b'"preferredDuringSchedulingIgnoredDuringExecution"', b'"ScheduleAnyway"'
_NULL = msgspec.Raw(b"null")


class _Arguments(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderArgs: a pod and the names of candidate nodes."""

    pod: msgspec.Raw = _NULL
    nodes: msgspec.Raw = msgspec.Raw()
    node_names: msgspec.Raw = _NULL


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult: the answer of filter, with names of nodes only (nodeCacheCapable)."""

    node_names: Sequence[str]
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}  # which no preemption helps
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """The score of one node, as prioritize returns it."""

    host: str
    score: int


class Arguments(NamedTuple):
    """The pod and the candidate nodes of a filter or prioritize request."""

    pod: scheduling_views.Pod
    nodes: Sequence[str]
    has_preferences: bool  # the pod has preferred affinity terms, or a soft topology spread


_decode = msgspec.json.Decoder(_Arguments).decode
_decode_pod = msgspec.json.Decoder(scheduling_views.Pod | None).decode
_decode_names = msgspec.json.Decoder(list[str] | None).decode
_encode = msgspec.json.Encoder().encode


def read_arguments(body: bytes) -> Arguments:
    """Return the arguments of a filter or prioritize request. Raises decoding.MalformedError."""
    arguments = decoding.decode_body(_decode, body)
    pod = decoding.decode_object(_decode_pod, arguments.pod, "Pod")
    if pod is None:
        raise decoding.MalformedError("Pod is missing: expected {Pod, NodeNames} as kube-scheduler sends them")
    decoding.check_pod(pod)
    decoding.check_count("NodeNames", bytes(arguments.node_names).count(b",") + 1, decoding.MAX_NODES, "names")
    names = decoding.decode_body(_decode_names, arguments.node_names)
    if names is None:
        hint = (
            "set nodeCacheCapable: true for this extender"
            if bytes(arguments.nodes) not in _ABSENT
            else "expected a list"
        )
        raise decoding.MalformedError(f"NodeNames is missing: {hint}")
    text = bytes(arguments.pod)  # quotes inside of strings are escaped, so that longer texts do not match
    return Arguments(pod, names, has_preferences=_PREFERRED in text or _SOFT in text)


def encode_filter_result(left: Sequence[str], refusals: Mapping[str, reason.Reason]) -> bytes:
    """Encode the answer of filter: the remaining nodes, and why others are refused."""
    text_by_reason = {refusal: f"railwright: {refusal.text}" for refusal in {*refusals.values()}}
    messages = {name: text_by_reason[refusal] for name, refusal in refusals.items()}
    return _encode(FilterResult(left, failed_and_unresolvable_nodes=messages))


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize from scores of 0..100, as integers."""
    priorities_by_score = score_terms.convert_to_priorities(scores.values())
    return _encode(list(map(HostPriority, scores, map(priorities_by_score.__getitem__, scores.values()))))


# --- the handlers ---------------------------------------------------------------------------------------------

_MAX_NARROWED = 65_536  # pods, of 200 bytes each; one that is forgotten may be left with a leaf again
_SAME_PRIORITY = 0.25  # scores that differ by less get one integer of kube-scheduler (`score_terms`)


class _FilterDecision(NamedTuple):
    """The decision of a filter request, kept for the prioritize request that follows with the remaining nodes."""

    nodes: Sequence[str]
    decision: decisions.Decision


class KubeScheduler:
    """The handlers of kube-scheduler's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding
        self._planned: _FilterDecision | None = None  # by the latest filter
        # the leaf that the latest filter of a pod left, by UID; NO_DOMAIN after one that left all nodes
        self._narrowed: bounded_cache.BoundedCache[str, topology.Domain] = bounded_cache.BoundedCache(_MAX_NARROWED)

    def filter(self, body: bytes) -> bytes:
        """Answer POST /scheduler/filter: the remaining nodes, and the refused ones with reasons."""
        self._planned = None
        arguments = read_arguments(body)
        request = self._build_request(arguments)
        if request is None:
            return encode_filter_result(arguments.nodes, {})
        self._decider.scored.forget(self._decider.clock(), request)
        nodes, refusals = request.nodes, self._decider.find_refusals(request)
        if refusals:
            nodes = [name for name in nodes if name not in refusals]
        has_choice = len(nodes) > 1 and bool(request.gang) and not arguments.has_preferences
        if nodes and (has_choice or request.has_segment):
            nodes = self._narrow_to_leaf(request, nodes)
        if len(nodes) == 1 or (nodes and request.has_segment):  # kube-scheduler takes a single one without scores
            leaf = self._planned.decision.view.get_leaf(nodes[0]) if self._planned else topology.NO_DOMAIN
            self._assume(request, nodes[0], leaf)
        return encode_filter_result(nodes, refusals)

    def prioritize(self, body: bytes) -> bytes:
        """Answer POST /scheduler/prioritize: the score of each node."""
        arguments = read_arguments(body)
        nodes, planned = arguments.nodes, self._planned
        self._planned = None
        uid = arguments.pod.metadata.identity
        if planned is not None and planned.nodes == nodes and planned.decision.view.request.uid == uid:
            decision = planned.decision
        else:
            request = self._build_request(arguments)
            if request is None:
                return encode_priorities(dict.fromkeys(nodes, 0.0))
            self._decider.scored.forget(self._decider.clock())
            nodes, decision = request.nodes, self._decider.score(request)
        scores = decision.score(nodes)
        self._assume_on_best_node(decision.view, scores)
        return encode_priorities(scores)

    def _narrow_to_leaf(self, request: scheduling_request.SchedulingRequest, nodes: Sequence[str]) -> Sequence[str]:
        """Return the nodes in the pod's target leaf, or all given nodes in the cases that the module's docstring lists.

        For a pod of a segment, return the nodes of one leaf.
        """
        if len(nodes) < len(request.nodes):
            request = msgspec.structs.replace(request, nodes=nodes)
        decision = self._decider.score(request)
        target = decision.target_leaf or topology.NO_DOMAIN
        left = (
            decision.list_nodes_in_target_leaf()
            if target and decision.gang.size > 1 and decision.plan.is_complete
            else ()
        )
        earlier = self._narrowed.get(request.uid) or topology.NO_DOMAIN
        has_failed = (
            not decision.view.index.nodes_by_leaf.get(earlier, {}).keys().isdisjoint(nodes) if earlier else False
        )
        if request.has_segment:
            left = decision.list_nodes_in_one_domain(nodes, last=earlier if has_failed else topology.NO_DOMAIN)
            target = decision.view.get_leaf(left[0]) if left else topology.NO_DOMAIN
        elif has_failed or not left or len(left) == len(nodes) or all(map(self._has_soft_taint, left)):
            left = nodes
        is_narrowed = request.has_segment or len(left) < len(nodes)
        if earlier or is_narrowed:
            self._narrowed.add(request.uid, target if is_narrowed else topology.NO_DOMAIN)
        self._planned = _FilterDecision(left, decision)
        return left

    def _has_soft_taint(self, name: str) -> bool:
        taints = self._decider.state.cluster.nodes[name].taints
        return any(taint.effect == "PreferNoSchedule" for taint in taints)

    def _assume_on_best_node(self, view: node_index.RequestView, scores: dict[str, float]) -> None:
        """Assume the pod on the node with the best score. For a pod of a gang, raise the score of one of equal nodes.

        kube-scheduler chooses among equal nodes at random and does not announce its choice. Different pods get
        different nodes, so that a recreated pod does not fail on the same node again.
        """
        request, best = view.request, max(scores.values(), default=0.0)
        equal = [name for name, score in scores.items() if best - score < _SAME_PRIORITY]
        if best <= 0 or (len(equal) > 1 and not request.gang):
            return
        name = equal[zlib.crc32(request.uid.encode()) % len(equal)]
        scores[name] = best + _SAME_PRIORITY
        self._assume(request, name, view.get_leaf(name))

    def _assume(self, request: scheduling_request.SchedulingRequest, node: str, leaf: topology.Domain) -> None:
        """Assume the pod on a node of this leaf until its binding is seen."""
        is_confined = request.has_segment and bool(leaf) and leaf == self._narrowed.get(request.uid)
        self._decider.scored.assume(request, node, self._decider.clock(), is_confined=is_confined)

    def _build_request(self, arguments: Arguments) -> scheduling_request.SchedulingRequest | None:
        pod, policy, state = arguments.pod, self._decider.policy(), self._decider.state
        requests = state.cluster.compute_requests(pod)
        return scheduling_request.build_request(pod, policy, state.pools, arguments.nodes, requests=requests)
