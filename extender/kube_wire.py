"""Decodes and encodes kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1).

The protocol's Go types have no JSON tags, so the keys are spelled as in Go.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from extender import decoding
from railwright.fabric import scheduling_views
from railwright.fabric.placement.nodes import score_terms

_ABSENT = (b"", b"null")
_NULL = msgspec.Raw(b"null")


class _Arguments(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderArgs: a pod and the names of candidate nodes."""

    pod: msgspec.Raw = _NULL
    nodes: msgspec.Raw = msgspec.Raw()
    node_names: msgspec.Raw = _NULL


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult for nodeCacheCapable extenders."""

    node_names: list[str]
    failed_nodes: Mapping[str, str]
    failed_and_unresolvable_nodes: Mapping[str, str]
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


class Arguments(NamedTuple):
    """The pod and the candidate nodes of a filter or prioritize request."""

    pod: scheduling_views.Pod
    nodes: list[str]
    constraints: bytes  # digest of the fields by which kube-scheduler chooses the candidate nodes


_decode = msgspec.json.Decoder(_Arguments).decode
_decode_pod = msgspec.json.Decoder(scheduling_views.Pod | None).decode
_decode_names = msgspec.json.Decoder(list[str] | None).decode
_decode_constraints = msgspec.json.Decoder(_PodConstraints).decode
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
    return Arguments(pod, names, _read_constraints(arguments.pod))


def _read_constraints(pod: msgspec.Raw) -> bytes:
    """Return a digest that is equal for pods which get the same candidate nodes from kube-scheduler."""
    spec = decoding.decode_body(_decode_constraints, pod).spec
    fields = (spec.node_selector, spec.affinity, spec.topology_spread_constraints, spec.tolerations)
    return hashlib.sha256(b"\0".join(map(bytes, fields))).digest()


def encode_filter_result(
    feasible: Iterable[str], unschedulable: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    """Encode the answer of filter: feasible nodes, and the reasons of nodes rejected now or for good."""
    return _encode(
        FilterResult(node_names=list(feasible), failed_nodes=unschedulable, failed_and_unresolvable_nodes=unresolvable)
    )


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize from scores of 0..100. `priorities` converts them to integers."""
    priorities_by_score = score_terms.KubePriorities(best=max(scores.values(), default=0.0))
    return _encode(list(map(HostPriority, scores, map(priorities_by_score.__getitem__, scores.values()))))
