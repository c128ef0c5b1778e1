"""What a check has read of a cluster, frozen: objects by source, and why a source could not be read.

Owns the table of sources (where each is, as what it is decoded, which right it takes) and the ways rows look things up.
Knows no connection and judges nothing.
"""

import datetime as dt
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.cluster import policies
from railwright.fabric import hypernodes, names, views
from railwright.fabric.policy import model as documents

WEBHOOK, EXTENDER, CERTS = "railwright-webhook", names.EXTENDER_SERVICE, "railwright-certs"
CONFIGURATION = "railwright"  # the name of our webhook configurations
SECRETS = {WEBHOOK: "railwright-webhook-tls", EXTENDER: "railwright-extender-tls"}
VOLCANO_NAMESPACE, VOLCANO_CONFIGMAP = "volcano-system", "volcano-scheduler-configmap"  # of Volcano's own chart
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class Source(msgspec.Struct, frozen=True):
    """One thing to read. `path` may hold {namespace}, ours; a 404 is no error: there is none then."""

    name: str
    path: str
    right: str  # as `kubectl auth can-i` takes it
    single: bool = False  # an object, not a list
    view: Any = Any  # what items are decoded into
    query: Mapping[str, str] = {}


def _own(name: str, group: str, plural: str, **more: Any) -> Source:
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    right = f"list {plural}{_suffix(group)} -n {{namespace}}"
    return Source(name, f"{prefix}/namespaces/{{namespace}}/{plural}", right, **more)


def _all(name: str, group: str, plural: str, **more: Any) -> Source:
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return Source(name, f"{prefix}/{plural}", f"list {plural}{_suffix(group)} -A", **more)


def _one(name: str, namespace: str, plural: str, obj: str) -> Source:
    path = f"/api/v1/namespaces/{namespace}/{plural}/{obj}"
    return Source(name, path, f"get {plural}/{obj} -n {namespace}", single=True)


def _suffix(group: str) -> str:
    return f".{group.partition('/')[0]}" if "/" in group else ""


_OURS: Mapping[str, str] = {"labelSelector": "app.kubernetes.io/part-of=railwright"}
SOURCES: tuple[Source, ...] = (
    Source("version", "/version", "get /version", single=True),
    _all("namespaces", "v1", "namespaces"),
    _all("nodes", "v1", "nodes", view=views.Node),
    _own("deployments", "apps/v1", "deployments"),
    _own("own-pods", "v1", "pods", query=_OURS),
    _own("budgets", "policy/v1", "poddisruptionbudgets"),
    _own("services", "v1", "services"),
    _own("slices", "discovery.k8s.io/v1", "endpointslices"),
    _own("leases", "coordination.k8s.io/v1", "leases"),
    *(_one(f"{server}-secret", "{namespace}", "secrets", secret) for server, secret in SECRETS.items()),
    Source("mutating", f"{_ADMISSION}/mutatingwebhookconfigurations",
           "list mutatingwebhookconfigurations.admissionregistration.k8s.io"),
    Source("validating", f"{_ADMISSION}/validatingwebhookconfigurations",
           "list validatingwebhookconfigurations.admissionregistration.k8s.io"),
    Source("admission-policies", f"{_ADMISSION}/validatingadmissionpolicies",
           "list validatingadmissionpolicies.admissionregistration.k8s.io"),
    Source("admission-bindings", f"{_ADMISSION}/validatingadmissionpolicybindings",
           "list validatingadmissionpolicybindings.admissionregistration.k8s.io"),
    _one("policy", "{namespace}", "configmaps", names.POLICY_CONFIGMAP),
    _all("networks", "k8s.cni.cncf.io/v1", "network-attachment-definitions"),
    _all("hypernodes", "topology.volcano.sh/v1alpha1", "hypernodes", view=hypernodes.HyperNode),
    _all("topologies", "topology.node.k8s.io/v1alpha2", "noderesourcetopologies", view=views.NodeResourceTopology),
    _all("pods", "v1", "pods", view=views.Pod, query={"labelSelector": names.FABRIC}),
    _all("refusals", "v1", "events", query={"fieldSelector": "reason=FabricRefused"}),
    _one("volcano", VOLCANO_NAMESPACE, "configmaps", VOLCANO_CONFIGMAP),
    Source("kube-system", "/api/v1/namespaces/kube-system/configmaps", "list configmaps -n kube-system"),
    _all("queues", "scheduling.volcano.sh/v1beta1", "queues"),
)  # fmt: skip


class Trial(msgspec.Struct, frozen=True):
    """A pod that was created as a dry run: the pod as it would be, or what the API server said instead."""

    fabric: str
    namespace: str = ""
    problem: str = ""  # why it was not even tried
    pod: Any = None
    refusal: str = ""
    forbidden: bool = False  # the caller may not create pods there


class Seen(msgspec.Struct, frozen=True):
    """A look at a cluster. `now` is the caller's clock; `unread` holds a sentence for each source that gave nothing."""

    namespace: str
    now: dt.datetime
    server: str = ""
    objects: Mapping[str, tuple[Any, ...]] = {}
    unread: Mapping[str, str] = {}
    forbidden: tuple[str, ...] = ()  # rights the caller lacks for reading
    unknown: frozenset[str] = frozenset()  # sources of kinds the API server does not know
    may: Mapping[str, bool] = {}  # rights that were asked for, not tried
    trials: tuple[Trial, ...] = ()
    namespaced_pods: tuple[views.Pod, ...] = ()  # of namespaces that opt in, without a label of their own

    def all(self, source: str) -> tuple[Any, ...]:
        """The objects of a source; none where it could not be read."""
        return self.objects.get(source, ())

    def one(self, source: str) -> Any | None:
        """The object of a single source, None where there is none."""
        return next(iter(self.all(source)), None)

    def named(self, source: str, name: str) -> Any | None:
        """The object of that name, None where there is none."""
        return next((each for each in self.all(source) if dig(each, "metadata", "name") == name), None)

    @property
    def policy(self) -> documents.FabricPolicy | None:
        """The policy of the ConfigMap, None where there is none that is valid."""
        text = self.policy_text
        result = None if text is None else read_policy(text)
        return result.document if isinstance(result, documents.Policy) else None

    @property
    def policy_text(self) -> str | None:
        """The text under the ConfigMap's key, None where there is none."""
        text = dig(self.one("policy"), "data", names.POLICY_KEY)
        return text if isinstance(text, str) else None

    @property
    def hooks(self) -> tuple[Mapping[str, Any], ...]:
        """The entries of our mutating configuration and of our validating one."""
        both = (self.named(kind, CONFIGURATION) for kind in ("mutating", "validating"))
        return tuple(hook for each in both if each is not None for hook in dig(each, "webhooks") or ())


@functools.lru_cache(maxsize=8)
def read_policy(text: str) -> documents.Policy | policies.Rejected:
    """`policies.read`, once a text: several rows ask."""
    return policies.read(text)


def dig(tree: Any, *path: str) -> Any:
    """What is under these keys, None where anything on the way is no mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def name_of(obj: Any) -> str:
    """metadata.name, with its namespace where it has one."""
    metadata = dig(obj, "metadata")
    return "/".join(filter(None, (dig(metadata, "namespace"), dig(metadata, "name"))))


def listed(words: Iterable[str], limit: int = 5) -> str:
    """Words for a sentence: all of few, some of many."""
    words = list(words)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more


def counted(count: int, noun: str) -> str:
    """A number of things: 1 entry, 2 entries."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def arguments(deployment: Any) -> Iterator[str]:
    """The arguments of every container of a Deployment."""
    for container in dig(deployment, "spec", "template", "spec", "containers") or ():
        yield from dig(container, "args") or ()
