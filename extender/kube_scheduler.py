"""Answers kube-scheduler: filter and prioritize. Decodes, asks the decider, encodes.

The protocol is k8s.io/kube-scheduler/extender/v1. Its Go types have no JSON tags, so the keys are spelled as in Go.
kube-scheduler sends node names only, and announces nothing. So each call also shows where it has placed the pods before
(`unseen_pods`), and whether it offers nodes without the pods that it would evict.

A pod of a gang that fits is left with the one node that the plan gives it. kube-scheduler takes a single feasible node
without scores: neither its plugins nor prioritize are called. All feasible nodes are left

- to a pod whose author states preferences, which kube-scheduler's own plugins score,
- if the node has a taint PreferNoSchedule, or if kube-scheduler may have removed other pods from its snapshot,
- to a pod that is tried again: a plugin, or another extender, has refused the node after us.

Prioritize then answers from the decision that filter has made.

Handlers are generators: they yield while nodes are evaluated for a new kind of pod. The decision itself is made at
once.
"""

import functools
import hashlib
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender import decider, decoding, explanations, scheduling_requests, unseen_pods
from railwright.fabric import bounded_cache, resources, scheduling_views, views
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.nodes import node_index, request_view, score_terms
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code
from railwright.serving import turns

# --- the protocol ---------------------------------------------------------------------------------------------

_ABSENT = (b"", b"null")
_MAX_CACHED = 32 << 10  # bytes of a pod that is not decoded again
_MAX_READ = 256  # pods that are not decoded again
_PREFERRED, _SOFT = b'"preferredDuringSchedulingIgnoredDuringExecution"', b'"ScheduleAnyway"'
_NULL = msgspec.Raw(b"null")


class _Arguments(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderArgs: a pod and the names of candidate nodes."""

    pod: msgspec.Raw = _NULL
    nodes: msgspec.Raw = msgspec.Raw()
    node_names: msgspec.Raw = _NULL


_Messages = Mapping[str, str] | msgspec.Raw
"""Node -> why it is rejected; or this as JSON."""


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult for nodeCacheCapable extenders."""

    node_names: msgspec.Raw  # the list as JSON
    failed_nodes: _Messages
    failed_and_unresolvable_nodes: _Messages
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """One node's score."""

    host: str
    score: int


class _Constraints(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a pod's spec by which kube-scheduler chooses candidate nodes, as raw JSON."""

    node_selector: msgspec.Raw = _NULL
    affinity: msgspec.Raw = _NULL
    topology_spread_constraints: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL


class _PodConstraints(msgspec.Struct, frozen=True):
    spec: _Constraints = _Constraints()


class PodArgument(msgspec.Struct):
    """The pod of a request, and what follows from it alone."""

    pod: scheduling_views.Pod
    constraints: bytes  # digest of the fields by which kube-scheduler chooses the candidate nodes
    requests: resources.FrozenAmounts  # of the pod's containers
    has_preferences: bool  # the pod prefers nodes by more than its resources
    spec: views.PodSpec  # without what may be megabytes
    earlier: scheduling_request.SchedulingRequest | None = None  # the last one for this pod, without nodes


class Arguments(NamedTuple):
    """The pod and the candidate nodes of a filter or prioritize request."""

    pod: scheduling_views.Pod
    nodes: Sequence[str]
    argument: PodArgument


_decode = msgspec.json.Decoder(_Arguments).decode
_decode_pod = msgspec.json.Decoder(scheduling_views.Pod | None).decode
_decode_names = msgspec.json.Decoder(list[str] | None).decode
_decode_constraints = msgspec.json.Decoder(_PodConstraints).decode
_encode = msgspec.json.Encoder().encode


class _Feasible(NamedTuple):
    """The nodes that filter left. The next request is usually prioritize, with the same list."""

    text: bytes  # as JSON
    names: Sequence[str]
    nodes: frozenset[str]  # the same nodes


_NONE_FEASIBLE = _Feasible(b"", (), frozenset())


def read_arguments(
    body: bytes, feasible: _Feasible = _NONE_FEASIBLE, read_pod: Callable[[bytes], PodArgument] | None = None
) -> Arguments:
    """Return the arguments of a filter or prioritize request. Raises decoding.MalformedError.

    The list of nodes is not decoded if it is `feasible`. `read_pod` reads small pods, and remembers some.
    """
    arguments = decoding.decode_body(_decode, body)
    text = bytes(arguments.pod)
    argument = _read_pod(text) if read_pod is None or len(text) > _MAX_CACHED else read_pod(text)
    names_text = bytes(arguments.node_names)
    if names_text == feasible.text:
        return Arguments(argument.pod, feasible.names, argument)
    decoding.check_count("NodeNames", names_text.count(b",") + 1, decoding.MAX_NODES, "names")
    names = decoding.decode_body(_decode_names, arguments.node_names)
    if names is None:
        hint = (
            "set nodeCacheCapable: true for this extender"
            if bytes(arguments.nodes) not in _ABSENT
            else "expected a list"
        )
        raise decoding.MalformedError(f"NodeNames is missing: {hint}")
    return Arguments(argument.pod, names, argument)


def _read_pod(text: bytes) -> PodArgument:
    pod = decoding.decode_object(_decode_pod, msgspec.Raw(text), "Pod")
    if pod is None:
        raise decoding.MalformedError("Pod is missing: expected {Pod, NodeNames} as kube-scheduler sends them")
    decoding.check_pod(pod)
    constraints, has_preferences = _read_constraints(text)
    requests, spec = resources.compute_requests(pod.spec), scheduling_request.trim_spec(pod.spec)
    return PodArgument(pod, constraints, requests, has_preferences, spec)


def _read_constraints(pod: bytes) -> tuple[bytes, bool]:
    """Return a digest that is equal for pods which get the same candidate nodes from kube-scheduler.

    The second value is True if the pod has preferred affinity terms, or a soft topology spread.
    """
    spec = decoding.decode_body(_decode_constraints, pod).spec
    fields = (spec.node_selector, spec.affinity, spec.topology_spread_constraints, spec.tolerations)
    has_preferences = _PREFERRED in bytes(spec.affinity) or _SOFT in bytes(spec.topology_spread_constraints)
    return hashlib.sha256(b"\0".join(map(bytes, fields))).digest(), has_preferences


def encode_filter_result(feasible: bytes, unschedulable: _Messages, unresolvable: _Messages) -> bytes:
    """Encode the answer of filter: the feasible nodes (JSON), and the reasons of nodes rejected now or for good."""
    return _encode(FilterResult(msgspec.Raw(feasible), unschedulable, unresolvable))


def encode_one_message(nodes: Sequence[str], message: str) -> _Messages:
    """Return the map of nodes to one message, as JSON: with thousands of nodes this takes a third of the time."""
    names, value = _encode(nodes), _encode(message)
    if names.count(b",") >= len(nodes):  # a comma in a name: the replacement below could split the name
        return dict.fromkeys(nodes, message)
    return msgspec.Raw(b"{%b:%b}" % (names[1:-1].replace(b'","', b'":%b,"' % value), value))


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize from scores of 0..100. `KubePriorities` converts them to integers."""
    priorities_by_score = score_terms.KubePriorities(best=max(scores.values(), default=0.0))
    return _encode(list(map(HostPriority, scores, map(priorities_by_score.__getitem__, scores.values()))))


# --- the handlers ---------------------------------------------------------------------------------------------

_Prepared = tuple[scheduling_request.SchedulingRequest, node_index.NodeIndex | None]
_NO_MESSAGES: tuple[_Messages, _Messages] = ({}, {})
_SAME_PRIORITY = 0.25  # scores that differ by less get one integer of kube-scheduler (`KubePriorities`)
_MAX_CHOSEN = 65_536  # pods, of 200 bytes each; a pod that is forgotten may be left with one node again


class _Planned(NamedTuple):
    """The decision that filter has made of a pod, for the prioritize request with the nodes that it left."""

    uid: str
    nodes: Sequence[str]
    decision: engine.Decision


class KubeScheduler:
    """The handlers of kube-scheduler's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding
        self._feasible = _NONE_FEASIBLE  # of the latest filter
        # kube-scheduler asks twice about a pod, and about one of a PodGroup for each topology domain
        self._read_pod = functools.lru_cache(maxsize=_MAX_READ)(_read_pod)
        self._planned: _Planned | None = None
        # pods that were left with one node, and the leaf if kube-scheduler tries one domain after the other
        self._chosen: bounded_cache.BoundedCache[tuple[str, Hashable], bool] = bounded_cache.BoundedCache(_MAX_CHOSEN)

    def filter(self, body: bytes) -> bytes:
        """POST /scheduler/filter, at once."""
        return turns.complete(self.filter_nodes(body))[0]

    def filter_nodes(self, body: bytes) -> turns.Steps[tuple[bytes, bool]]:
        """POST /scheduler/filter. Return the answer, and True if it rejects every candidate node."""
        unseen, cluster = self._decider.unseen, self._decider.state.cluster
        self._planned = None
        arguments = self._decode(body)
        nodes = arguments.nodes
        prepared = yield from self._prepare(arguments, plans=_may_choose(arguments))
        if prepared is None:
            return encode_filter_result(_encode(nodes), {}, {}), False
        request, index = prepared
        call = self._build_call(request, arguments.argument)
        unseen.record_call(call, cluster)
        if refusal := self._find_uncounted_rails(call):
            self._decider.reject_all("filter", request, refusal)
            message = rendering.render_for_scheduler(refusal)
            return encode_filter_result(b"[]", dict.fromkeys(nodes, message), {}), False
        missing = unseen.list_missing(cluster, self._decider.clock())
        result = self._decider.filter(explanations.KUBE_SCHEDULER, "filter", request, index, missing)
        feasible, feasible_nodes = result.feasible, result.feasible_nodes
        if _may_choose(arguments) and request.gang and len(feasible) > 1 and not _may_lack_pods(request, index):
            offered = scheduling_request.restrict(request, feasible, feasible_nodes)
            feasible = self._choose_nodes(offered, call.entry, index, result.feasible_classes)
            feasible_nodes = feasible_nodes if len(feasible) > 1 else frozenset(feasible)
        unseen.record_feasible(msgspec.structs.replace(call, feasible=feasible_nodes))
        self._feasible = _Feasible(_encode(feasible), feasible, feasible_nodes)
        # kube-scheduler reads why nodes are rejected only if none is left, in the end by us or by a later extender
        messages = _NO_MESSAGES if len(feasible) < len(result.feasible) else _render_rejections(result)
        return encode_filter_result(self._feasible.text, *messages), bool(nodes) and not feasible

    def prioritize(self, body: bytes) -> turns.Steps[bytes]:
        """POST /scheduler/prioritize."""
        arguments = self._decode(body)
        prepared = yield from self._prepare(arguments, plans=True)
        if prepared is None:
            return encode_priorities(dict.fromkeys(arguments.nodes, 0.0))
        request, index = prepared
        planned, self._planned = self._planned, None
        if planned is not None and planned.nodes is request.nodes and planned.uid == request.uid:
            scores, unknown = planned.decision.scores, planned.decision.unknown_nodes
            if len(planned.nodes) == 1:
                scores, unknown = {planned.nodes[0]: planned.decision.node_scores.best}, 0
        else:
            decision = self._score(request, index)
            self._record_scores(request, self._build_entry(request), decision, _list_best(request, decision))
            scores, unknown = decision.scores, decision.unknown_nodes
        self._decider.observe("prioritize", len(request.nodes), unknown)
        return encode_priorities(scores)

    def _choose_nodes(
        self,
        request: scheduling_request.SchedulingRequest,
        entry: assumed_pods.AssumedPod,
        index: node_index.NodeIndex | None,
        classes: request_view.Classes | None,
    ) -> Sequence[str]:
        """Plan the gang of a request with feasible nodes only. Return the nodes to leave: one, or all of them.

        Pods begin at different ones of the equally best nodes: a pod that fails on its node, where kubelet or a device
        refuses it, is created again, and should not get the same node each time.
        """
        decision = self._score(request, index, classes)
        best_nodes = _list_best(request, decision)
        start = zlib.crc32(request.uid.encode()) % max(1, len(best_nodes))
        key = (request.uid, decision.gang.target_leaf if request.has_domains_in_turn else None)
        in_turn = (*best_nodes[start:], *best_nodes[:start])
        node = next((name for name in in_turn if self._may_leave(request, name)), "")
        if decision.gang_size < 2 or not decision.plan.is_complete or self._chosen.get(key):
            node = ""
        if node:
            self._chosen.add(key, True)
        nodes = (node,) if node else request.nodes
        self._planned = _Planned(request.uid, nodes, decision)
        self._record_scores(request, entry, decision, (node,) if node else best_nodes)
        return nodes

    def _may_leave(self, request: scheduling_request.SchedulingRequest, node: str) -> bool:
        cluster = self._decider.state.cluster
        is_avoided = any(taint.effect == "PreferNoSchedule" for taint in cluster.nodes[node].taints)
        return not is_avoided and self._decider.unseen.has_room(request, cluster, node)

    def _score(
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex | None,
        classes: request_view.Classes | None = None,
    ) -> engine.Decision:
        unseen = self.list_unseen(request)
        return self._decider.score(explanations.KUBE_SCHEDULER, request, index, unseen, classes=classes)

    def _record_scores(
        self,
        request: scheduling_request.SchedulingRequest,
        entry: assumed_pods.AssumedPod,
        decision: engine.Decision,
        best_nodes: tuple[str, ...],
    ) -> None:
        is_short = decision.gang.has_domains and not decision.plan.is_complete
        fits = not (is_short and self._starts_as_a_whole(request))
        self._decider.unseen.record_scores(request, entry, best_nodes, fits=fits)

    def list_unseen(self, request: scheduling_request.SchedulingRequest) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods that kube-scheduler has very likely placed before this request, and that are not seen yet."""
        return self._decider.unseen.list_pods(request, self._decider.state.cluster, self._decider.clock())

    def _decode(self, body: bytes) -> Arguments:
        return read_arguments(body, self._feasible, self._read_pod)

    def _prepare(self, arguments: Arguments, *, plans: bool = False) -> turns.Steps[_Prepared | None]:
        """Build the request, and evaluate the nodes for it; build it again if time has passed meanwhile."""
        request, index = self._build_request(arguments), None
        if request is not None:
            steps, is_interrupted = self._decider.prepare(request, plans=plans), False
            while index is None:
                try:
                    next(steps)
                except StopIteration as end:
                    index = end.value
                else:
                    is_interrupted = True
                    yield
            if is_interrupted:
                request, index = self._build_request(arguments), None
        self._decider.note_request(request)
        return None if request is None else (request, index)

    def _build_request(self, arguments: Arguments) -> scheduling_request.SchedulingRequest | None:
        state, pod, nodes, argument = self._decider.state, arguments.pod, arguments.nodes, arguments.argument
        inputs, request = (pod, nodes, self._decider.policy(), state, argument.requests), None
        if argument.earlier is not None:
            offered = self._feasible.nodes if nodes is self._feasible.names else None
            request = scheduling_requests.repeat_kube_request(argument.earlier, *inputs, offered)
        if request is None:
            request = scheduling_requests.build_kube_request(*inputs)
            argument.earlier = request and scheduling_request.restrict(request, (), frozenset())
        may_have_victims = pod.spec.scheduling_group or pod.status.nominated_node_name
        if request is None or pod.spec.preemption_policy == "Never" or not may_have_victims:
            return request
        scheduler = pod.spec.scheduler_name
        counts_rails = self._decider.unseen.counts_rails(scheduler)
        preemption = scheduling_request.Preemption(
            below=pod.spec.priority or 0,
            uncounted=frozenset() if counts_rails else request.container_rails,
            bound_elsewhere=state.recent_bindings.list_nodes(self._decider.clock(), except_scheduler=scheduler),
        )
        return msgspec.structs.replace(request, preemption=preemption)

    def _build_call(
        self, request: scheduling_request.SchedulingRequest, argument: PodArgument
    ) -> unseen_pods.FilterCall:
        return unseen_pods.FilterCall(
            entry=self._build_entry(request),
            scheduler=request.spec.scheduler_name,
            spec=argument.spec,
            constraints=argument.constraints,
            offered=request.offered,
            is_grouped=request.spec.scheduling_group is not None,
            below=None if request.preemption is None else request.preemption.below,
            rails=request.container_rails,
        )

    def _build_entry(self, request: scheduling_request.SchedulingRequest) -> assumed_pods.AssumedPod:
        """Return the pod of a request, without a node."""
        return assumed_pods.AssumedPod(
            uid=request.uid,
            key=request.key,
            gang=request.gang,
            rank=request.rank,
            node="",
            requests=request.requests,
            state=assumed_pods.State.UNCONFIRMED,
            since=self._decider.clock(),
        )

    def _starts_as_a_whole(self, request: scheduling_request.SchedulingRequest) -> bool:
        return request.spec.scheduling_group is not None and self._decider.state.cluster.has_min_count(request.gang)

    def _find_uncounted_rails(self, call: unseen_pods.FilterCall) -> reason.Reason | None:
        """Return the reason to refuse all nodes to a pod of a PodGroup whose rails kube-scheduler does not count."""
        if not call.is_grouped or not call.rails:
            return None
        if not self._decider.unseen.has_offered_twice(call.scheduler, call.entry.since):
            return None
        return reason.make(Code.RAILS_UNCOUNTED, resources=reason.take_first(sorted(call.rails)))


def _may_choose(arguments: Arguments) -> bool:
    """True if kube-scheduler may be left with one node for a pod, as far as the pod shows."""
    return not arguments.argument.has_preferences and not arguments.pod.status.nominated_node_name


def _may_lack_pods(request: scheduling_request.SchedulingRequest, index: node_index.NodeIndex | None) -> bool:
    """True if kube-scheduler may have removed pods of lower priority from its snapshot, to find victims."""
    return request.preemption is not None and (index is None or request_view.offers_full_nodes(request, index))


def _list_best(request: scheduling_request.SchedulingRequest, decision: engine.Decision) -> tuple[str, ...]:
    """Return the equal nodes of the planned leaf of which a pod of a gang very likely goes to one."""
    return decision.list_best_planned(_SAME_PRIORITY) if request.gang else ()


def _render_rejections(result: engine.FilterResult) -> tuple[_Messages, _Messages]:
    """Return the messages of nodes that are filtered now, and of those that would be without any other pod."""
    if not result.rejections:
        return {}, {}
    messages = {
        node_class: rendering.render_for_scheduler(rejection.reason)
        for node_class, rejection in result.rejections.items()
    }
    unresolvable = {node_class for node_class, rejection in result.rejections.items() if rejection.is_unresolvable}
    if len(distinct := set(messages.values())) == 1 and not unresolvable:
        return encode_one_message(list(result.rejected), distinct.pop()), {}
    by_finality: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, node_class in result.rejected.items():
        by_finality[node_class in unresolvable][name] = messages[node_class]
    return by_finality
