"""Builds scheduling requests from the schedulers' messages and the policy in force.

What is free on the nodes comes from the cluster state and the assumed pods. Volcano sends it too, and announces every
change of it, so that it is not read.
"""

from collections.abc import Sequence

import msgspec

from extender import state as states
from extender import volcano_wire
from railwright.fabric import resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import model


def build_kube_request(
    pod: views.Pod, nodes: Sequence[str], policy: model.Policy | None, state: states.State
) -> scheduling_request.SchedulingRequest | None:
    """Build the request for a call of kube-scheduler."""
    requests = compute_requests(pod, state.cluster)
    return scheduling_request.build_request(pod, policy, state.pools, nodes, requests=requests)


def build_volcano_request(
    task: volcano_wire.Task, nodes: Sequence[str], policy: model.Policy | None, state: states.State
) -> scheduling_request.SchedulingRequest | None:
    """Build the request for a call of Volcano."""
    if task.pod is None:
        return None
    request = scheduling_request.build_request(
        task.pod,
        policy,
        state.pools,
        nodes,
        requests=compute_requests(task.pod, state.cluster),
        volcano_job=task.job,
        uid=task.uid,
        is_announced=True,
    )
    is_confined = request is not None and state.cluster.is_confined(request.gang)
    return msgspec.structs.replace(request, is_confined=True) if request is not None and is_confined else request


def compute_requests(pod: views.Pod, cluster: cluster_state.ClusterState) -> resources.FrozenAmounts:
    """Return the requests of a pod, with the devices that its claims request."""
    return cluster.compute_requests(pod, resources.compute_requests(pod.spec))
