"""kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1): Go spelling, no JSON tags.

Knows nothing of how scores come about.
"""

from collections.abc import Iterable, Mapping

import msgspec

from extender import requests
from railwright.fabric import placed_pods
from railwright.fabric.placement import priorities

_ABSENT = (b"", b"null")
_NULL = msgspec.Raw(b"null")


class Arguments(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderArgs: a pod and the names of the nodes to judge."""

    pod: placed_pods.Pod | None = None
    nodes: msgspec.Raw = msgspec.Raw()
    node_names: list[str] | None = None


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
    """What of a pod's spec tells where kube-scheduler lets it go, as written."""

    node_selector: msgspec.Raw = _NULL
    affinity: msgspec.Raw = _NULL
    topology_spread_constraints: msgspec.Raw = _NULL
    tolerations: msgspec.Raw = _NULL


class _PodConstraints(msgspec.Struct, frozen=True):
    spec: _Constraints = _Constraints()


class _PodOfArguments(msgspec.Struct, frozen=True, rename="pascal"):
    pod: _PodConstraints = _PodConstraints()


Constraints = tuple[bytes, ...]
"""As in the pod's spec: node selector, affinity, spread constraints, tolerations."""

_decode = msgspec.json.Decoder(Arguments).decode
_decode_constraints = msgspec.json.Decoder(_PodOfArguments).decode
_encode = msgspec.json.Encoder().encode


def read(body: bytes) -> tuple[placed_pods.Pod, list[str]]:
    """(pod, node names) of a filter or prioritize request. Raises requests.MalformedError."""
    arguments = requests.decoded(_decode, body)
    if arguments.pod is None:
        raise requests.MalformedError("Pod is missing: expected {Pod, NodeNames} as kube-scheduler sends them")
    if arguments.node_names is None:
        hint = (
            "set nodeCacheCapable: true for this extender"
            if bytes(arguments.nodes) not in _ABSENT
            else "expected a list"
        )
        raise requests.MalformedError(f"NodeNames is missing: {hint}")
    return arguments.pod, arguments.node_names


def read_constraints(body: bytes) -> Constraints:
    """What decides to which nodes kube-scheduler offers a pod; pods with equal constraints are offered the same nodes.

    Raises requests.MalformedError.
    """
    spec = requests.decoded(_decode_constraints, body).pod.spec
    return tuple(map(bytes, (spec.node_selector, spec.affinity, spec.topology_spread_constraints, spec.tolerations)))


def filtered(kept: Iterable[str], busy: Mapping[str, str], never: Mapping[str, str]) -> bytes:
    """The answer of filter: nodes kept, nodes busy now, nodes that can never hold the pod."""
    return _encode(FilterResult(node_names=list(kept), failed_nodes=busy, failed_and_unresolvable_nodes=never))


def prioritized(scores: Mapping[str, float]) -> bytes:
    """The answer of prioritize, of scores of 0..100; how they become integers is said in `priorities`."""
    whole = priorities.Priorities(best=max(scores.values(), default=0.0))
    return _encode(list(map(HostPriority, scores, map(whole.__getitem__, scores.values()))))
