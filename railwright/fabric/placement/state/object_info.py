"""The fields of nodes and pods that placement uses."""

from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import bounded_cache, intent, names, node_views, resources, views
from railwright.fabric.claims import inventory
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


def read_node(node: node_views.Node, interner: bounded_cache.StringInterner, share: Share) -> NodeInfo:
    """Return the fields of a node, with the amounts that kubelet reports."""
    conditions = node.status.conditions or ()
    is_ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
    return NodeInfo(
        name=node.metadata.name,
        labels=interner.intern_mapping(node.metadata.labels),
        allocatable=share(resources.parse_amounts(node.status.allocatable)),
        capacity=share(resources.parse_amounts(node.status.capacity)),
        taints=tuple(node.spec.taints or ()),
        schedulable=is_ready and not node.spec.unschedulable,
        broken_rails=read_broken_rails(node.metadata.annotations),
    )


def read_broken_rails(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in the annotation of a node, each once; most nodes have none."""
    value = annotations.get(names.BROKEN_RAILS)
    if not value:
        return ()
    rails = (part.strip() for part in value[:_MAX_TEXT].split(",", _MAX_NAMES)[:_MAX_NAMES])
    return tuple(dict.fromkeys(filter(None, rails)))


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
    part: str = ""  # of its gang, placed as a unit; "" for the whole gang
    fabric: str = ""  # that it was injected with; "" if it was not
    rails: tuple[str, ...] = ()  # of that fabric, counted by a resource or not
    is_ending: bool = False  # it is being deleted
    reduced: views.Pod | None = None  # what scheduling requests read of it; None if it did not opt in

    @property
    def place(self) -> str:
        """Return the name that a pod shares with its successor: an indexed Job's pod loses the random suffix."""
        rank = self.rank
        return self.key if not rank.is_labelled or self.key.endswith(f"-{rank.index}") else self.key.rpartition("-")[0]

    @property
    def claims(self) -> inventory.PodKey:
        """Return the key of its claims."""
        return inventory.PodKey(self.uid, self.key.partition("/")[0], self.claim_names, self.templates)


_MAX_RAILS = 4096  # characters of the names in a record, which a forged one may exceed


def read_pod(
    pod: views.Pod,
    claims: inventory.PodKey,
    interner: bounded_cache.StringInterner,
    requests: resources.FrozenAmounts,
    container_requests: resources.FrozenAmounts,
) -> PodInfo:
    """Return the fields of a pod with these claims and requests."""
    metadata, spec, intern = pod.metadata, pod.spec, interner.intern
    info = PodInfo(
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
        part=intern(membership.find_part(pod)),
        is_ending=bool(metadata.deletion_timestamp),
    )
    if names.INJECTION not in metadata.annotations:  # most pods of a cluster
        return info
    record = intent.read_record(pod)
    rails = record.rails or ()
    return msgspec.structs.replace(
        info,
        policy=intern(record.digest),
        fabric=intern(record.fabric),
        rails=rails if sum(map(len, rails)) <= _MAX_RAILS else (),
    )
