"""The kinds that are watched or read from a snapshot, one row each: their API path and their view."""

from typing import Any

import msgspec

from railwright.cluster import installed_names
from railwright.fabric import (
    hypernodes,
    kueue,
    names,
    node_views,
    scheduling_views,
    views,
)
from railwright.fabric.claims import objects
from railwright.fabric.workloads import frameworks, grove, membership


class Kind(msgspec.Struct, frozen=True):
    """A watched kind. `optional`: its CRD may be absent, which means that there are no such objects.

    `snapshot_kind` is its key in a snapshot: KIND, by default the name of the view, or KIND.GROUP if the kind exists in
    several API groups.
    """

    name: str  # plural, as in metrics and logs
    path: str
    view: type[Any]  # one of fabric.views that has metadata
    optional: bool = False
    field_selector: str = ""
    max_values: int | None = None  # commas of an object that is read: list entries and keys, and those in strings
    brief: type[Any] | None = None  # view of an object with more values, which is skipped if this is None
    title: str = ""  # for people; "" if `name` needs no explanation
    snapshot_kind: str = ""

    def __post_init__(self) -> None:
        """Set the default of `snapshot_kind`."""
        if not self.snapshot_kind:
            msgspec.structs.force_setattr(self, "snapshot_kind", self.view.__name__)

    @property
    def group(self) -> str:
        """Return the API group, "" for that of Pods."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""

    @property
    def words(self) -> str:
        """Return the name of the kind for people."""
        return self.title or self.name


MAX_POD_VALUES = 15_000  # the webhook admits pods with at most 10,000; controllers and kubelets add to them later

NODES = Kind("nodes", "/api/v1/nodes", node_views.Node)
PODS = Kind("pods", "/api/v1/pods", views.Pod, max_values=MAX_POD_VALUES)
PLACED_PODS = Kind(  # without what placement does not read
    "pods",
    "/api/v1/pods",
    scheduling_views.Pod,
    max_values=MAX_POD_VALUES,
    brief=scheduling_views.BriefPod,
)
NAMESPACES = Kind("namespaces", "/api/v1/namespaces", views.Namespace)
NADS = Kind(
    "network-attachment-definitions",
    "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
    views.NetworkAttachmentDefinition,
    optional=True,
    title="Multus networks",
)
NODE_TOPOLOGIES = Kind(
    "noderesourcetopologies.topology.node.k8s.io",
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    node_views.NodeResourceTopology,
    optional=True,
    title="NUMA topologies of nodes",
)
# recent Events of the webhook and the extender; watched by a user's dashboard only
WEBHOOK_EVENTS = Kind(
    "events",
    "/api/v1/events",
    views.Event,
    optional=True,
    field_selector="source=railwright-webhook",
    title="Events of railwright",
)
EXTENDER_EVENTS = Kind(
    "events of the extender",
    "/api/v1/events",
    views.Event,
    optional=True,
    field_selector="source=railwright-extender",
    title="Events of railwright",
)
HYPER_NODES = Kind(
    "hypernodes.topology.volcano.sh",
    "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    hypernodes.HyperNode,
    optional=True,
    title="Volcano's HyperNodes",
)
# Dynamic Resource Allocation: stable from Kubernetes 1.34, the taint rules from 1.37
RESOURCE_SLICES = Kind(
    "resourceslices.resource.k8s.io", "/apis/resource.k8s.io/v1/resourceslices", objects.ResourceSlice, optional=True
)
RESOURCE_CLAIMS = Kind(
    "resourceclaims.resource.k8s.io", "/apis/resource.k8s.io/v1/resourceclaims", objects.ResourceClaim, optional=True
)
CONFIGURED_CLAIMS = Kind(  # with the configuration that drivers get
    "resourceclaims.resource.k8s.io",
    "/apis/resource.k8s.io/v1/resourceclaims",
    objects.ConfiguredClaim,
    optional=True,
    snapshot_kind="ResourceClaim",
)
CLAIM_TEMPLATES = Kind(
    "resourceclaimtemplates.resource.k8s.io",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    objects.ResourceClaimTemplate,
    optional=True,
)


def _build_kueue_kind(plural: str, view: type[Any], max_values: int | None = None) -> Kind:
    return Kind(
        f"{plural}.{kueue.GROUP}",
        f"/apis/{kueue.VERSION}/{plural}",
        view,
        optional=True,
        max_values=max_values,
        title=f"Kueue's {plural}",
        snapshot_kind=f"{view.__name__}.{kueue.GROUP}",
    )


KUEUE_WORKLOADS = _build_kueue_kind("workloads", kueue.Workload, MAX_POD_VALUES)
LOCAL_QUEUES = _build_kueue_kind("localqueues", kueue.LocalQueue)
CLUSTER_QUEUES = _build_kueue_kind("clusterqueues", kueue.ClusterQueue)
RESOURCE_FLAVORS = _build_kueue_kind("resourceflavors", kueue.ResourceFlavor)
TOPOLOGIES = _build_kueue_kind("topologies", kueue.Topology)
KUEUE = (KUEUE_WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES)
KAI_TOPOLOGIES = Kind(
    "topologies.kai.scheduler",
    "/apis/kai.scheduler/v1alpha1/topologies",
    kueue.Topology,  # has the fields of Kueue's
    optional=True,
    title="KAI's topologies",
    snapshot_kind="Topology.kai.scheduler",
)
GROVE_TOPOLOGIES = Kind(
    "clustertopologybindings.grove.io",
    "/apis/grove.io/v1alpha1/clustertopologybindings",
    grove.ClusterTopologyBinding,
    optional=True,
    title="Grove's topologies",
    snapshot_kind="ClusterTopologyBinding.grove.io",
)
COMPUTE_DOMAINS = Kind(
    "computedomains.resource.nvidia.com",
    "/apis/resource.nvidia.com/v1beta1/computedomains",
    views.ComputeDomain,
    optional=True,
)
DEVICE_CLASSES = Kind(
    "deviceclasses.resource.k8s.io", "/apis/resource.k8s.io/v1/deviceclasses", objects.DeviceClass, optional=True
)
DEVICE_TAINT_RULES = Kind(
    "devicetaintrules.resource.k8s.io",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    objects.DeviceTaintRule,
    optional=True,
)


POLICY = Kind(
    "policy",
    f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps",
    views.ConfigMap,
    field_selector=f"metadata.name={installed_names.POLICY}",
    title="the policy",
)
FABRIC_POLICIES = Kind(
    f"{names.POLICY_PLURAL}.{names.DOMAIN}",
    f"/apis/{names.POLICY_API_VERSION}/namespaces/{installed_names.NAMESPACE}/{names.POLICY_PLURAL}",
    views.FabricPolicy,
    optional=True,
    field_selector=f"metadata.name={installed_names.POLICY}",
    title="the policy",
)


def _build_kind(kind: frameworks.SizeKind) -> Kind:
    return Kind(
        kind.name,
        kind.path,
        kind.view,
        optional=kind.optional,
        max_values=frameworks.MAX_VALUES,
        title="jobs and PodGroups that state gang sizes",
        snapshot_kind=kind.snapshot_kind,
    )


GANG_SIZES = {kind.name: _build_kind(kind) for kind in membership.SIZE_KINDS}  # objects that declare gang sizes
