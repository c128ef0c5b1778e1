"""kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1): Go spelling, no JSON tags.

Knows nothing of how scores come about.
"""

from collections.abc import Iterable, Mapping

import msgspec

from extender import requests
from fabric import placed_pods
from fabric.placement import priorities

_ABSENT = (b"", b"null")


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


_decode = msgspec.json.Decoder(Arguments).decode
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


def filtered(kept: Iterable[str], busy: Mapping[str, str], never: Mapping[str, str]) -> bytes:
    """The answer of filter: nodes kept, nodes busy now, nodes that can never hold the pod."""
    return _encode(FilterResult(node_names=list(kept), failed_nodes=busy, failed_and_unresolvable_nodes=never))


def prioritized(scores: Mapping[str, float]) -> bytes:
    """The answer of prioritize, of scores of 0..100; how they become integers is said in `priorities`."""
    whole = priorities.Priorities(best=max(scores.values(), default=0.0))
    return _encode(list(map(HostPriority, scores, map(whole.__getitem__, scores.values()))))
