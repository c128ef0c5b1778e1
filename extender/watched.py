"""Lists the kinds that placement needs, watched or read from a snapshot, each with its sink."""

from typing import Any

from extender import state as states
from railwright.cluster import resources, sinks, sources
from railwright.fabric.placement import size_kinds


def wanted(state: states.State, *, pods: sinks.Sink[Any] | None = None) -> list[sources.Wanted]:
    """Return a watch for each kind. `pods` is a second sink of pods."""
    state_pods = states.Pods(state)
    table: list[tuple[resources.Kind, str, sinks.Sink[Any]]] = [
        (resources.NODES, "Node", states.Nodes(state)),
        (resources.PLACED_PODS, "Pod", state_pods if pods is None else sinks.Both(state_pods, pods)),
        (resources.NADS, "NetworkAttachmentDefinition", states.Networks(state)),
        (resources.HYPER_NODES, "HyperNode", states.HyperNodes(state)),
        (resources.NODE_TOPOLOGIES, "NodeResourceTopology", states.NodeTopologies(state)),
    ]
    table += [(kind, snapshot, states.Sizes(state, size_kind)) for kind, snapshot, size_kind in _SIZES]
    large = (resources.NODES, resources.PLACED_PODS)  # applied gradually: a partial cluster state is still consistent
    return [
        sources.Wanted(kind=kind, snapshot_kind=snapshot, sink=sink, gradual=kind in large)
        for kind, snapshot, sink in table
    ]


# Kinds that state the size of a gang: (watched kind, kind in a snapshot, reader). A snapshot does not distinguish
# versions of a kind.
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
