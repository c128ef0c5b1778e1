"""The fields of nodes and pods that placement uses, and which rails of a node are broken.

A rail is broken if the node has devices of it and none is allocatable: the device plugin found them unhealthy, or its
driver tainted them in the ResourceSlice. It is also broken if the node's annotation `railwright.io/broken-rails` names
it, in any fabric. If some devices are allocatable, the rail is only ranked lower, because it is unknown which of
several rails with one resource lacks its device.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, intent, names, node_views, resources, views
from railwright.fabric.claims import inventory
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import membership

_GATED = "SchedulingGated"  # reason of a condition (k8s.io/api/core/v1, PodReasonSchedulingGated)
_MAX_TEXT, _MAX_NAMES = 4096, 64  # characters and names of an annotation of a node
Share = Callable[[resources.Amounts], resources.FrozenAmounts]  # returns one object for equal amounts


class NodeInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a node that placement uses. Amounts include the devices of its ResourceSlices."""

    name: str
    labels: Mapping[str, str]
    allocatable: resources.FrozenAmounts
    capacity: resources.FrozenAmounts
    taints: tuple[node_views.Taint, ...]
    schedulable: bool  # Ready and not cordoned
    broken_rails: tuple[str, ...] = ()  # names in its annotation


def read_node(node: node_views.Node, share: Share) -> NodeInfo:
    """Return the fields of a node, with the amounts that kubelet reports."""
    conditions = node.status.conditions or ()
    is_ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
    return NodeInfo(
        name=node.metadata.name,
        labels=bounded_cache.intern_strings(node.metadata.labels),
        allocatable=share(resources.parse_amounts(node.status.allocatable)),
        capacity=share(resources.parse_amounts(node.status.capacity)),
        taints=tuple(node.spec.taints or ()),
        schedulable=is_ready and not node.spec.unschedulable,
        broken_rails=read_broken_rails(node.metadata.annotations),
    )


def read_broken_rails(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of broken rails in the annotations of a node, each once."""
    value = annotations.get(names.BROKEN_RAILS)
    if not value:
        return ()
    rails = (part.strip() for part in value[:_MAX_TEXT].split(",", _MAX_NAMES)[:_MAX_NAMES])
    return tuple(dict.fromkeys(filter(None, rails)))


# --- broken rails ---------------------------------------------------------------------------------------------


class BrokenRail(NamedTuple):
    """A rail that is broken, and why."""

    rail: str
    is_named: bool  # by the annotation

    def describe(self) -> reason.Reason:
        """Return why the rail is broken, as a message."""
        if self.is_named:
            message = f"the node's annotation {names.BROKEN_RAILS} names {self.rail}"
            return reason.Reason(PlacementCode.RAIL_BROKEN, message)
        return reason.Reason(PlacementCode.RAIL_BROKEN, f"{self.rail} dead or absent")


def may_have_broken_rails(node: NodeInfo) -> bool:
    """True if an annotation names rails of the node, or no device of one of its extended resources is allocatable."""
    return bool(node.broken_rails) or any(_is_dead(node, name) for name in node.capacity if "/" in name)


def find_broken_rails(node: NodeInfo, rails: Iterable[model.Rail]) -> tuple[BrokenRail, ...]:
    """Return the broken rails of a node among `rails`."""
    return tuple(
        [
            BrokenRail(rail.name, rail.name in node.broken_rails)
            for rail in rails
            if rail.name in node.broken_rails or (rail.resource and _is_dead(node, rail.resource))
        ]
    )


def _is_dead(node: NodeInfo, resource: str) -> bool:
    return node.capacity.get(resource, 0) > 0 and node.allocatable.get(resource, 0) <= 0


# --- pods -----------------------------------------------------------------------------------------------------


class PodInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a pod that placement uses."""

    uid: str
    key: str  # namespace/name; one string object shared by all explanations
    node: str  # "" until bound
    gang: membership.GangKey
    rank: membership.Rank
    requests: resources.FrozenAmounts  # of its containers and of its claims
    container_requests: resources.FrozenAmounts
    claim_names: tuple[str, ...]  # namespace/name of the claims that its spec names
    templates: tuple[str, ...] = ()  # namespace/name of the templates from which claims are generated for it
    bound_at: str = ""  # RFC 3339 in seconds, by the API server's clock; "" until bound or if unknown
    policy: str = ""  # digest of the policy it was admitted under; "" if it was not injected
    is_held: bool = False  # a scheduling gate keeps schedulers from it
    fabric: str = ""  # that it was injected with; "" if it was not
    rails: tuple[str, ...] = ()  # of that fabric, counted by a resource or not
    is_ending: bool = False  # it is being deleted
    reduced: views.Pod | None = None  # what scheduling requests read of it; None if it did not opt in

    @property
    def stable_name(self) -> str:
        """Return the name that a pod shares with its successor; of an indexed Job's pod, without the random suffix."""
        rank = self.rank
        return self.key if not rank.is_labelled or self.key.endswith(f"-{rank.index}") else self.key.rpartition("-")[0]

    @property
    def claims(self) -> inventory.PodKey:
        """Return the key by which the claims of the pod are found."""
        return inventory.PodKey(self.uid, self.key.partition("/")[0], self.claim_names, self.templates)


_MAX_RAILS = 4096  # characters of the names in a record, which a forged one may exceed


def read_pod(
    pod: views.Pod,
    claims: inventory.PodKey,
    requests: resources.FrozenAmounts,
    container_requests: resources.FrozenAmounts,
    reduced: views.Pod | None,
) -> PodInfo:
    """Return the fields of a pod that placement uses; `requests` include the devices of its claims."""
    metadata, spec, intern = pod.metadata, pod.spec, sys.intern
    record = intent.read_record(pod)
    rails = record.rails or ()
    return PodInfo(
        claims.uid,
        metadata.full_name,
        intern(spec.node_name),
        membership.GangKey(intern(membership.find_gang(pod))),
        membership.find_rank(pod),
        requests,
        container_requests,
        claims.claims,
        claims.templates,
        bound_at=pod.status.bound_at if spec.node_name else "",
        is_held=any(condition.reason == _GATED for condition in pod.status.conditions or ()),
        is_ending=bool(metadata.deletion_timestamp),
        policy=intern(record.digest),
        fabric=intern(record.fabric),
        rails=rails if sum(map(len, rails)) <= _MAX_RAILS else (),
        reduced=reduced,
    )


_MAX_SPECS = 4096  # distinct scheduling constraints; all pods of a gang share one
_ANNOTATIONS = (  # that placement reads
    names.FABRIC,
    names.INJECTION,
    names.RAILS,
    names.SEGMENT,
    *membership.GROUP_ANNOTATIONS,
)


class PodReducer:
    """Reduces pods to the fields that placement reads. Pods with equal specs share one."""

    def __init__(self) -> None:
        self._specs = bounded_cache.BoundedCache[bytes, views.PodSpec](_MAX_SPECS)

    def reduce(self, pod: views.Pod) -> views.Pod | None:
        """Return a pod with only the fields that placement reads; None if it did not opt in."""
        if not intent.is_opted_in(pod):
            return None
        annotations = {key: pod.metadata.annotations[key] for key in _ANNOTATIONS if key in pod.metadata.annotations}
        if names.INJECTION in annotations:  # kilobytes, of which placement reads two fields
            record = intent.read_record(pod)
            annotations[names.INJECTION] = msgspec.json.encode(
                {"fabric": record.fabric, "rails": record.rails}
            ).decode()
        # containers may be megabytes; their requests are known
        spec = msgspec.structs.replace(pod.spec, node_name="", containers_or_none=None, init_containers=None)
        return views.Pod(
            metadata=msgspec.structs.replace(pod.metadata, resource_version="", annotations_or_none=annotations),
            spec=self._specs.get_or_compute(msgspec.json.encode(spec), lambda: spec),
        )
