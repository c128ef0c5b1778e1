"""The watched kinds, one row each: their API path and their view."""

from typing import Any

import msgspec

from railwright.fabric import hypernodes, names, placed_pods, views, workload_views


class Kind(msgspec.Struct, frozen=True):
    """A watched kind. `optional`: its CRD may be absent, which means that there are no such objects."""

    name: str  # plural, as in metrics and logs
    path: str
    view: type[Any]  # one of fabric.views that has metadata
    optional: bool = False
    field_selector: str = ""


NODES = Kind("nodes", "/api/v1/nodes", views.Node)
PODS = Kind("pods", "/api/v1/pods", views.Pod)
PLACED_PODS = Kind("pods", "/api/v1/pods", placed_pods.Pod)  # the same, without fields that placement does not read
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
# Kubernetes' own: a Workload in 1.35, a PodGroup since 1.36 (kubernetes PR 136976), both disabled by default
IN_TREE_POD_GROUPS = Kind(
    "podgroups.scheduling.k8s.io", "/apis/scheduling.k8s.io/v1beta1/podgroups", views.PodGroup, optional=True
)
IN_TREE_POD_GROUPS_ALPHA = Kind(
    "podgroups.v1alpha2.scheduling.k8s.io", "/apis/scheduling.k8s.io/v1alpha2/podgroups", views.PodGroup, optional=True
)
# recent Events of the webhook; watched by a user's dashboard only
WEBHOOK_EVENTS = Kind(
    "events", "/api/v1/events", views.Event, optional=True, field_selector="source=railwright-webhook"
)
HYPER_NODES = Kind(
    "hypernodes.topology.volcano.sh",
    "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    hypernodes.HyperNode,
    optional=True,
)


def _workloads(plural: str, group: str, version: str, *, optional: bool = True, name: str = "") -> Kind:
    path = f"/apis/{group}/{version}/{plural}"
    return Kind(name or f"{plural}.{group}", path, workload_views.Workload, optional=optional)


IN_TREE_WORKLOADS = _workloads("workloads", "scheduling.k8s.io", "v1alpha1")
JOBS = _workloads("jobs", "batch", "v1", optional=False)
STATEFUL_SETS = _workloads("statefulsets", "apps", "v1", optional=False)
REPLICA_SETS = _workloads("replicasets", "apps", "v1", optional=False)
VOLCANO_JOBS = _workloads("jobs", "batch.volcano.sh", "v1alpha1")
PYTORCH_JOBS = _workloads("pytorchjobs", "kubeflow.org", "v1")
TF_JOBS = _workloads("tfjobs", "kubeflow.org", "v1")
XGBOOST_JOBS = _workloads("xgboostjobs", "kubeflow.org", "v1")
PADDLE_JOBS = _workloads("paddlejobs", "kubeflow.org", "v1")
JAX_JOBS = _workloads("jaxjobs", "kubeflow.org", "v1")
MPI_JOBS = _workloads("mpijobs", "kubeflow.org", "v2beta1")
MPI_JOBS_V1 = _workloads("mpijobs", "kubeflow.org", "v1", name="mpijobs.v1.kubeflow.org")
POLICY = Kind(
    "policy",
    f"/api/v1/namespaces/{names.NAMESPACE}/configmaps",
    views.ConfigMap,
    field_selector=f"metadata.name={names.POLICY_CONFIGMAP}",
)
