"""What placement is decided on: the kinds that are watched, or read from a snapshot, and the sinks they feed.

Owns the table. Knows neither who reads the state nor how a watch is run.
"""

from typing import Any

from extender import state as states
from railwright.cluster import resources, sinks, sources
from railwright.fabric.placement import size_kinds


def wanted(state: states.State, *, pods: sinks.Sink[Any] | None = None) -> list[sources.Wanted]:
    """All kinds, each with its sink of this state; `pods` are told of bound and unbound pods beside it."""
    known = states.Pods(state)
    table: list[tuple[resources.Kind, str, sinks.Sink[Any]]] = [
        (resources.NODES, "Node", states.Nodes(state)),
        (resources.PLACED_PODS, "Pod", known if pods is None else sinks.Both(known, pods)),
        (resources.NADS, "NetworkAttachmentDefinition", states.Networks(state)),
        (resources.HYPER_NODES, "HyperNode", states.HyperNodes(state)),
        (resources.NODE_TOPOLOGIES, "NodeResourceTopology", states.NodeTopologies(state)),
    ]
    table += [(kind, snapshot, states.Sizes(state, told)) for kind, snapshot, told in _SIZES]
    large = (resources.NODES, resources.PLACED_PODS)  # a fleet is right about what it has been told
    return [
        sources.Wanted(kind=kind, snapshot_kind=snapshot, sink=sink, gradual=kind in large)
        for kind, snapshot, sink in table
    ]


# What tells the size of a gang: watched as, in a snapshot as, read as. Two versions of a kind are one in a snapshot.
_SIZES = (
    (resources.VOLCANO_POD_GROUPS, "PodGroup.scheduling.volcano.sh", size_kinds.VOLCANO_POD_GROUPS),
    (resources.PLUGINS_POD_GROUPS, "PodGroup.scheduling.x-k8s.io", size_kinds.PLUGINS_POD_GROUPS),
    (resources.IN_TREE_POD_GROUPS_ALPHA, "PodGroup.scheduling.k8s.io", size_kinds.IN_TREE_POD_GROUPS_ALPHA),
    (resources.IN_TREE_POD_GROUPS, "PodGroup.scheduling.k8s.io", size_kinds.IN_TREE_POD_GROUPS),
    (resources.IN_TREE_WORKLOADS, "Workload.scheduling.k8s.io", size_kinds.IN_TREE_WORKLOADS),
    (resources.JOBS, "Job.batch", size_kinds.JOBS),
    (resources.STATEFUL_SETS, "StatefulSet.apps", size_kinds.STATEFUL_SETS),
    (resources.REPLICA_SETS, "ReplicaSet.apps", size_kinds.REPLICA_SETS),
    (resources.VOLCANO_JOBS, "Job.batch.volcano.sh", size_kinds.VOLCANO_JOBS),
    (resources.PYTORCH_JOBS, "PyTorchJob.kubeflow.org", size_kinds.PYTORCH_JOBS),
    (resources.TF_JOBS, "TFJob.kubeflow.org", size_kinds.TF_JOBS),
    (resources.XGBOOST_JOBS, "XGBoostJob.kubeflow.org", size_kinds.XGBOOST_JOBS),
    (resources.PADDLE_JOBS, "PaddleJob.kubeflow.org", size_kinds.PADDLE_JOBS),
    (resources.JAX_JOBS, "JAXJob.kubeflow.org", size_kinds.JAX_JOBS),
    (resources.MPI_JOBS_V1, "MPIJob.kubeflow.org", size_kinds.MPI_JOBS_V1),
    (resources.MPI_JOBS, "MPIJob.kubeflow.org", size_kinds.MPI_JOBS),
)
