"""The kinds that are watched, one row each: where the API server has them and which view they become."""

from typing import Any

import msgspec

from fabric import names, views


class Kind(msgspec.Struct, frozen=True):
    """A watched kind. `optional`: its CRD may be absent, which means that there are no such objects."""

    name: str  # plural, as in metrics and logs
    path: str
    view: type[Any]  # one of fabric.views that has metadata
    optional: bool = False
    field_selector: str = ""


NODES = Kind("nodes", "/api/v1/nodes", views.Node)
PODS = Kind("pods", "/api/v1/pods", views.Pod)
NAMESPACES = Kind("namespaces", "/api/v1/namespaces", views.Namespace)
NADS = Kind(
    "network-attachment-definitions",
    "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
    views.NetworkAttachmentDefinition,
    optional=True,
)
VOLCANO_POD_GROUPS = Kind(
    "podgroups.scheduling.volcano.sh", "/apis/scheduling.volcano.sh/v1beta1/podgroups", views.PodGroup, optional=True
)
PLUGINS_POD_GROUPS = Kind(
    "podgroups.scheduling.x-k8s.io", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", views.PodGroup, optional=True
)
NODE_TOPOLOGIES = Kind(
    "noderesourcetopologies.topology.node.k8s.io",
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    views.NodeResourceTopology,
    optional=True,
)
POLICY = Kind(
    "policy",
    f"/api/v1/namespaces/{names.NAMESPACE}/configmaps",
    views.ConfigMap,
    field_selector=f"metadata.name={names.POLICY_CONFIGMAP}",
)
