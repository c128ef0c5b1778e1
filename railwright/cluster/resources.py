"""The kinds that are watched or read from a snapshot: for each its API path, and the view that decodes its objects."""

from typing import Any

import msgspec

from railwright.cluster import installed_names
from railwright.fabric import hypernodes, node_views, scheduling_views, views
from railwright.fabric.claims import objects
from railwright.fabric.workloads import frameworks, membership


class Kind(msgspec.Struct, frozen=True):
    """A watched kind. `optional`: its CRD may be absent, which means that there are no such objects."""

    name: str  # plural, as in metrics and logs
    path: str
    view: type[Any]  # one of fabric.views that has metadata
    optional: bool = False
    field_selector: str = ""
    # commas of an object that is read: list entries and keys, and those in strings; one with more is skipped
    max_values: int | None = None
    display_name: str = ""  # KIND.GROUP if the kind exists in several API groups

    @property
    def snapshot_kind(self) -> str:
        """Return the key of its objects in a snapshot: KIND, or KIND.GROUP if several API groups have the kind."""
        return self.display_name or self.view.__name__

    @property
    def group(self) -> str:
        """Return the API group, "" for the core group."""
        return self.path.split("/")[2] if self.path.startswith("/apis/") else ""


MAX_POD_VALUES = 15_000  # the webhook admits pods with at most 10,000; controllers and kubelets add to them later

NODES = Kind("nodes", "/api/v1/nodes", node_views.Node)
WAITING_PODS = Kind(  # without a node; a pod that gets one leaves the watch
    "pods", "/api/v1/pods", views.Pod, field_selector="spec.nodeName=", max_values=MAX_POD_VALUES
)
# without what placement does not read
PLACED_PODS = Kind("pods", "/api/v1/pods", scheduling_views.Pod, max_values=MAX_POD_VALUES)
NAMESPACES = Kind("namespaces", "/api/v1/namespaces", views.Namespace)
POLICY = Kind(
    "policy",
    f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps",
    views.ConfigMap,
    field_selector=f"metadata.name={installed_names.POLICY}",
)


def _build_optional_kind(version: str, plural: str, view: type[Any], name: str = "") -> Kind:
    """Return a kind of a custom resource, or of an API that not every cluster serves. `version` is GROUP/VERSION."""
    group = version.partition("/")[0]
    return Kind(name or f"{plural}.{group}", f"/apis/{version}/{plural}", view, optional=True)


_NADS = "network-attachment-definitions"
NADS = _build_optional_kind("k8s.cni.cncf.io/v1", _NADS, views.NetworkAttachmentDefinition, _NADS)
NODE_TOPOLOGIES = _build_optional_kind(
    "topology.node.k8s.io/v1alpha2", "noderesourcetopologies", node_views.NodeResourceTopology
)
HYPER_NODES = _build_optional_kind("topology.volcano.sh/v1alpha1", "hypernodes", hypernodes.HyperNode)
# Dynamic Resource Allocation: stable from Kubernetes 1.34, the taint rules from 1.37
_ALLOCATION = "resource.k8s.io/v1"
RESOURCE_SLICES = _build_optional_kind(_ALLOCATION, "resourceslices", objects.ResourceSlice)
RESOURCE_CLAIMS = _build_optional_kind(_ALLOCATION, "resourceclaims", objects.ResourceClaim)
CLAIM_TEMPLATES = _build_optional_kind(_ALLOCATION, "resourceclaimtemplates", objects.ResourceClaimTemplate)
DEVICE_CLASSES = _build_optional_kind(_ALLOCATION, "deviceclasses", objects.DeviceClass)


def _build_size_kind(kind: frameworks.SizeKind) -> Kind:
    return Kind(
        kind.name,
        kind.path,
        kind.view,
        optional="." in kind.group,  # those of a CRD, or off by default; batch and apps are always there
        max_values=frameworks.MAX_VALUES,
        display_name=kind.display_name,  # a snapshot does not distinguish versions
    )


GANG_SIZES = {kind.name: _build_size_kind(kind) for kind in membership.SIZE_KINDS}  # objects that declare gang sizes

# Where schedulers may have their configuration: as in Volcano's Helm chart, and any ConfigMap of this namespace
VOLCANO_CONFIGURATION = "/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"
