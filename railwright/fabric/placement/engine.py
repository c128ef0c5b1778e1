"""Scores nodes for one pod, for both schedulers in the same way, and finds the nodes to refuse.

A decision follows from the request, the cluster state, which has the assumed pods, and the memory of gangs that earlier
decisions returned (`gang_memory`). Each decision returns the next memory. `PlacementEngine` itself stores only caches.
`PlacementEngine.score` goes forward through the packages: cluster and gang (`state`), candidate nodes (`nodes`), the
gang's plan (`gangs`), scores (`decisions`). Reasons (`explain`) are computed on demand, in the same state. The adapters
of the extender translate results into the scales and status codes of Volcano and kube-scheduler.

Schedulers count devices, and know better which are free. So a decision ranks nodes and excludes none. Only two kinds of
nodes are refused: those outside the NVLink domain of the pod's segment, and those with a broken rail that the pod
needs.
"""

import functools
from collections.abc import Hashable, Mapping, Sequence

from railwright.fabric import bounded_cache, intent, resources
from railwright.fabric.placement import decisions, scheduling_request
from railwright.fabric.placement.explain import diagnosis, node_explainer, node_explanation
from railwright.fabric.placement.gangs import gang_memory, segments
from railwright.fabric.placement.nodes import node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status, object_info
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

_MAX_SIGNATURES = 64  # for which the classes of nodes are known


class PlacementEngine:
    """The placement engine of one cluster. Caches node indexes and gang plans between requests."""

    def __init__(self, cluster: cluster_state.ClusterState) -> None:
        self._cluster = cluster
        self._policy = ""  # the digest of the policy that both caches are for
        self._states: dict[str, node_index.NodeStates] = {}  # by fabric, 1 MB each at 5,000 nodes
        # each reads the states of its fabric, so that the two caches are cleared together
        self._indexes: bounded_cache.BoundedCache[Hashable, node_index.NodeIndex]
        self._indexes = bounded_cache.BoundedCache(_MAX_SIGNATURES)

    def warm_caches(self, policy: model.Policy, networks: intent.Networks) -> None:
        """Update the node states of each fabric in advance: 120 ms for 5,000 changed nodes with 20 pods each."""
        for name, fabric in policy.document.fabrics.items():
            if fabric.rails:
                self._refresh_states(policy, name, intent.fill_resources(name, fabric, networks))

    def get_index(self, request: scheduling_request.SchedulingRequest) -> node_index.NodeIndex:
        """Return the current node index for pods with the requests and constraints of the requesting pod."""
        gang = gang_status.build_status(request, self._cluster)
        return self._get_index(request, request.requests, gang)

    def score(
        self,
        request: scheduling_request.SchedulingRequest,
        memory: gang_memory.Memory = gang_memory.EMPTY,
    ) -> decisions.Decision:
        """Return the decision on a pod, which has the scores of its nodes. `memory` is from the last decision."""
        gang = gang_status.build_status(request, self._cluster)
        index = self._get_index(request, request.requests, gang)
        view = planning_view = node_index.build_view(request, index, self._cluster)
        if gang.planning_request != request.requests:
            index = self._get_index(request, gang.planning_request, gang)
            planning_view = node_index.build_view(request, index, self._cluster)
        return decisions.decide_on_pod(gang, view, planning_view, memory, self._cluster)

    # --- what is refused --------------------------------------------------------------------------------------

    def find_refusals(self, request: scheduling_request.SchedulingRequest) -> Mapping[str, reason.Reason]:
        """Return the refused candidate nodes, each with the reason. Most requests have none."""
        cluster = self._cluster
        refusals: dict[str, reason.Reason] = {}
        if request.has_segment:
            refusals |= self._find_other_domains(request)
        needed = [rail for rail in request.fabric.rails if rail.name in request.rails]
        for name in cluster.nodes_with_broken_rails & request.offered:
            broken = object_info.find_broken_rails(cluster.nodes[name], needed)
            if refused := _select_refusing_rails(broken, request):
                refusals[name] = refused[0].describe()
        return refusals

    def _find_other_domains(self, request: scheduling_request.SchedulingRequest) -> Mapping[str, reason.Reason]:
        """Return the candidate nodes outside of the NVLink domain of the pod's segment, each with the reason."""
        leaves = self._refresh_states(request.policy, request.fabric_name, request.fabric).leaf_by_node
        assumed = self._cluster.assumed.list_of_gang(request.gang)
        # a pod that kube-scheduler may have placed elsewhere excludes no domain
        uncertain = [pod.uid for pod in assumed if pod.state is assumed_pods.State.SCORED]
        segmented = segments.find_segments(request, self._cluster, leaves, uncertain)
        find_refusal = functools.cache(segmented.find_refusal)
        rows = ((name, find_refusal(leaves[name])) for name in request.nodes if name in leaves)
        return {name: refusal for name, refusal in rows if refusal is not None}

    # --- what explains a decision -----------------------------------------------------------------------------

    def explain_plan(self, decision: decisions.Decision) -> diagnosis.Diagnosis:
        """Explain the plan of a decision. The cluster state must not have changed since the decision."""
        return diagnosis.explain_plan(decision, self._cluster)

    def explain_nodes(
        self, request: scheduling_request.SchedulingRequest, first: str = ""
    ) -> list[node_explanation.NodeExplanation]:
        """Explain up to MAX_ROWS candidate nodes, best first; `first` and nodes of planned leaves are preferred."""
        return node_explainer.explain_nodes(self.score(request), self._cluster, self.find_refusals(request), first)

    # --- what is known of the nodes ---------------------------------------------------------------------------

    def _get_index(
        self,
        request: scheduling_request.SchedulingRequest,
        requests: resources.FrozenAmounts,
        gang: gang_status.GangStatus,
    ) -> node_index.NodeIndex:
        """Return the current node index for pods of a gang with these requests."""
        kind = request.build_kind(requests, is_single_pod=gang.size == 1)
        states = self._refresh_states(request.policy, request.fabric_name, request.fabric)
        return self._indexes.get_or_compute(kind.signature, lambda: node_index.NodeIndex(kind, states, self._cluster))

    def _refresh_states(self, policy: model.Policy, name: str, fabric: model.Fabric) -> node_index.NodeStates:
        """Return the current states of all nodes, for pods of a fabric. Its rails' resources change with networks."""
        if policy.digest != self._policy:
            self._policy = policy.digest
            self._states.clear()
            self._indexes.clear()
        states = self._states.get(name)
        if states is None or states.fabric != fabric:
            self._indexes.clear()  # they read the states that are replaced
            states = self._states[name] = node_index.NodeStates(self._cluster, fabric, policy.document)
        states.refresh()
        return states


def _select_refusing_rails(
    broken: Sequence[object_info.BrokenRail], request: scheduling_request.SchedulingRequest
) -> Sequence[object_info.BrokenRail]:
    """Return the broken rails for which a node is refused to the pod.

    Of rails that share a resource it is unknown which ones a pod gets, so they count only if the others have too few
    devices. A rail without allocatable devices does not count for a pod with its author's claims, which may tolerate
    taints.
    """
    names = {rail.rail for rail in broken}
    short = {
        rail
        for need in request.needs
        for rail in need.rails
        if request.fabric.count_devices(len({*need.rails} - names)) * resources.UNIT < need.amount
    }
    refusing = short.union(request.uncounted_rails)
    return [rail for rail in broken if (rail.rail in refusing if rail.is_named else not request.has_claims_of_author)]
