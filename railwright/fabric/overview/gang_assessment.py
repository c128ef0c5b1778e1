"""Assesses a gang in the present cluster: its state, its bandwidth, why it waits, and why its placement is no better.

Commands, `/explain`, the dashboard, Events and metrics all use this assessment. It reads no stored decision. The
devices of the gang's own pods and of pods that are being deleted count as free, so that `best` is what the gang would
get if it were recreated. Nothing is placed or reserved here.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, text, topology
from railwright.fabric.overview import overview_types
from railwright.fabric.placement import decisions, engine, scheduling_request
from railwright.fabric.placement.explain import node_explainer, placement_result
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation, node_index
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import membership

_MAX_REASONS = 6  # shown of a gang
_MAX_REFUSALS = 3  # of them, if every node is refused
_MAX_NAMED = 3  # pods under each version of the policy
_SHOWN_DIGITS = 19  # "sha256:" and 12 digits, enough to distinguish versions of the policy
_MIN_DIFFERENCE = 0.005  # smaller differences of bandwidth would be formatted as equal

_POLICY_WARNS = reason.Reason(
    PlacementCode.FABRIC_UNDEFINED, "there is no policy, or it is in mode warn, so no plan is made for these pods"
)
_DOMAINS_UNDEFINED = reason.Reason(
    PlacementCode.DOMAINS_UNDEFINED, "the policy names no domains: leaves and uplinks are not modelled"
)


# --- the gangs and their members --------------------------------------------------------------------------

MAX_GANGS = 1000  # shown; a cluster of 5,000 nodes runs some hundreds


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang."""

    uid: str
    key: str  # namespace/name
    rank: int  # from 0
    node: str  # "" until bound or assumed
    assumed: bool


class GangMembers(msgspec.Struct, frozen=True):
    """The members of one gang, and its key."""

    key: membership.GangKey
    size: int
    members: tuple[Member, ...]  # by rank

    @property
    def placed(self) -> int:
        """Return the number of members that have a node."""
        return sum(1 for member in self.members if member.node)

    @property
    def state(self) -> str:
        """Return overview_types.PLACED, STARTING or WAITING, from the number of pods with nodes alone."""
        placed = self.placed
        if placed >= self.size:
            return overview_types.PLACED
        return overview_types.STARTING if placed else overview_types.WAITING


def list_gangs(cluster: cluster_state.ClusterState) -> dict[membership.GangKey, GangMembers]:
    """Return the gangs of opted-in pods; of more than MAX_GANGS the first by name."""
    return {key: list_members(key, cluster) for key in sorted(cluster.opted_in_gangs)[:MAX_GANGS]}


def list_members(key: membership.GangKey, cluster: cluster_state.ClusterState) -> GangMembers:
    """Return the members of a gang."""
    pods = sorted(cluster.get_gang(key).values(), key=lambda pod: pod.rank)
    assumed_nodes = {assumed_pod.uid: assumed_pod.node for assumed_pod in cluster.assumed.list_of_gang(key)}
    members = tuple(
        Member(
            uid=pod.uid,
            key=pod.key,
            rank=number,
            node=pod.node or assumed_nodes.get(pod.uid, ""),
            assumed=not pod.node and pod.uid in assumed_nodes,
        )
        for number, pod in zip(_number_members(pods), pods, strict=True)
    )
    return GangMembers(key=key, size=cluster.get_gang_size(key, observed=len(members)), members=members)


def _number_members(pods: Sequence[object_info.PodInfo]) -> Sequence[int]:
    """Return the index of each pod, which does not change when others end; its position if indexes are not unique."""
    ranks = [pod.rank for pod in pods]
    is_unique = len({rank.index for rank in ranks}) == len(ranks) and len({rank.role for rank in ranks}) == 1
    return [rank.index for rank in ranks] if is_unique and all(rank.is_numbered for rank in ranks) else range(len(pods))


def assign_colours(
    old: Mapping[membership.GangKey, int], gangs: Collection[membership.GangKey]
) -> dict[membership.GangKey, int]:
    """Return the number of a colour for each gang: its previous number, or the lowest unused one."""
    colours = {key: old[key] for key in gangs if key in old}
    unused = sorted(set(range(len(gangs))).difference(colours.values()))
    return {**colours, **dict(zip((key for key in gangs if key not in old), unused, strict=False))}


# --- the assessment -----------------------------------------------------------------------------------------


class Assessor:
    """Assesses gangs by the present state of a cluster and the policy in force."""

    def __init__(
        self,
        cluster: cluster_state.ClusterState,
        policy: Callable[[], policies.Policy | None],
        networks: intent.Networks,
        placement_engine: engine.PlacementEngine | None = None,
    ) -> None:
        """`networks`: the resource of each network, by (namespace, name)."""
        self.cluster, self._policy, self._networks = cluster, policy, networks
        self.engine = placement_engine or engine.PlacementEngine(cluster)

    def find_pod(self, key: str) -> object_info.PodInfo | None:
        """Return the pod of this name (namespace/name); None if it does not exist or has ended."""
        return next((pod for pod in self.cluster.pods.values() if pod.key == key), None)

    def list_members(self, pod: object_info.PodInfo) -> GangMembers:
        """Return the gang of a pod; a pod without one is alone in it."""
        if pod.gang:
            return list_members(pod.gang, self.cluster)
        member = Member(pod.uid, pod.key, rank=0, node=pod.node, assumed=False)
        return GangMembers(key=membership.GangKey(pod.key), size=1, members=(member,))

    def build_request(self, pod: object_info.PodInfo) -> scheduling_request.SchedulingRequest | None:
        """Return a scheduling request for a pod with all nodes as candidates; None if no rails are planned for it."""
        if pod.reduced is None:
            return None
        nodes = tuple(self.cluster.nodes)
        request = scheduling_request.build_request(
            pod.reduced, self._policy(), self._networks, nodes, requests=pod.requests
        )
        return request and msgspec.structs.replace(request, is_filtered=False)

    def describe_undefined_fabric(self, pod: object_info.PodInfo | None) -> reason.Reason | None:
        """Return the reason for a pod whose fabric the policy lacks; None if the policy has it."""
        policy = self._policy()
        if policy is None or pod is None or pod.reduced is None:
            return None
        name = intent.find_fabric_name(pod.reduced, policy.document)
        if not name or name in policy.document.fabrics:
            return None
        if name == names.FABRIC_DEFAULT:
            message, fix = (
                "these pods name fabric `default`, but the current policy sets no default fabric",
                "set `defaultFabric`",
            )
        else:
            message = f"these pods name fabric {text.quote(name)}, but the current policy has no such fabric"
            fix = "define it again under this name"
        fix += ", or label the pods with another fabric and recreate them"
        return reason.Reason(PlacementCode.FABRIC_UNDEFINED, f"{message}, so no plan is made", fix)

    def assess_gang(self, gang: GangMembers) -> overview_types.Assessment:
        """Return the state and bandwidth of a gang, and why it waits or why its placement is no better."""
        chosen = self._choose_representative([member for member in gang.members if not member.node] or gang.members)
        request = self.build_request(chosen) if chosen is not None else None
        if request is None:
            assessment = overview_types.Assessment(
                state=gang.state, why=(self.describe_undefined_fabric(chosen) or _POLICY_WARNS,)
            )
        else:
            request = self._ignore_mixed_selectors(gang, request)
            if gang.placed < len(gang.members):
                assessment = _assess_waiting_gang(gang, request, self.engine)
                unselected = self.engine.get_index(request).unselected_nodes
                is_incomplete = gang.size > len(gang.members) or len(unselected) == len(self.cluster.nodes)
                if assessment.state == overview_types.NEVER and is_incomplete:
                    # pods that do not exist yet, as the workers of a leader, may select other nodes, and an autoscaler
                    # may add nodes to a pool that has none
                    request = msgspec.structs.replace(request, is_filtered=True)
                    assessment = _assess_waiting_gang(gang, request, self.engine)
            else:
                assessment = _assess_placed_gang(gang, request, self.engine, self.cluster)
        missing, mixture = _describe_missing_pods(gang), self.describe_mixed_policies(gang.key)
        last = (mixture,) if mixture else ()  # it delays no pod
        why = (*(*missing, *assessment.why)[: _MAX_REASONS - len(last)], *last)
        return msgspec.structs.replace(assessment, why=why)

    def describe_gang(
        self,
        gang: GangMembers,
        assessment: overview_types.Assessment,
        *,
        colour: int = 0,
    ) -> overview_types.Gang:
        """Return the gang with its assessment, as shown to users."""
        policy, placed, pods = self._policy(), gang.placed >= gang.size, self.cluster.pods
        infos = [pods[member.uid] for member in gang.members if member.uid in pods]
        opted_in = [pod for pod in infos if pod.reduced is not None]
        known = [pod.reduced for pod in opted_in if pod.reduced is not None]
        bound_at = [pod.bound_at for pod in infos]
        namespace, _, name = gang.key.partition("/")
        return overview_types.Gang(
            key=gang.key,
            name=membership.find_gang_name(known[0], gang.key) if known and membership.find_gang(known[0]) else name,
            namespace=namespace,
            fabric=_find_fabric(_find_pod_with_rails(opted_in, policy), policy)[0],
            colour=colour,
            size=gang.size,
            placed=gang.placed,
            created_at=min(filter(None, (pod.metadata.creation_timestamp for pod in known)), default=""),
            placed_at=max(bound_at, default="") if placed else "",
            **msgspec.structs.asdict(assessment),
        )

    def _choose_representative(self, members: Iterable[Member]) -> object_info.PodInfo | None:
        """Return the member whose requests and fabric represent the others: the largest of those that have rails."""
        policy = self._policy()
        accelerators = policy.document.accelerators if policy else ()
        pods = [pod for member in members if (pod := self.cluster.pods.get(member.uid)) is not None]
        pods.sort(key=lambda pod: sum(pod.requests.get(name, 0) for name in accelerators), reverse=True)
        return _find_pod_with_rails(pods, policy)

    def _ignore_mixed_selectors(
        self, gang: GangMembers, request: scheduling_request.SchedulingRequest
    ) -> scheduling_request.SchedulingRequest:
        """Return the request for all nodes, whatever their labels, if pods of the gang select different nodes.

        Kueue's topology-aware scheduling gives each pod its own node selector, so that no pod represents the others.
        """
        pods = [pod for member in gang.members if (pod := self.cluster.pods.get(member.uid)) is not None]
        workers = placement_result.select_workers(pods, request.devices)
        specs = [pod.reduced.spec for pod in workers if pod.reduced is not None]
        selections = {msgspec.json.encode((spec.node_selector, spec.affinity)) for spec in specs}
        return msgspec.structs.replace(request, is_filtered=len(selections) > 1)

    def describe_mixed_policies(self, gang: membership.GangKey) -> reason.Reason | None:
        """Return the reason if the pods of a gang were admitted under several versions of the policy; else None.

        Their injected settings may differ. Scores do not change: placement uses the current policy for all pods.
        """
        pods_by_policy: dict[str, list[object_info.PodInfo]] = defaultdict(list)
        injected = (pod for pod in self.cluster.get_gang(gang).values() if pod.policy)
        for pod in sorted(injected, key=lambda pod: pod.rank):
            pods_by_policy[pod.policy].append(pod)
        if len(pods_by_policy) < 2:
            return None
        versions = []
        for digest, pods in pods_by_policy.items():
            names = [pod.key.partition("/")[2] for pod in pods[:_MAX_NAMED]]
            more = ", ..." if len(pods) > _MAX_NAMED else ""
            versions.append(f"{len(pods)} under {digest[:_SHOWN_DIGITS]} ({', '.join(names)}{more})")
        pods_count = text.format_count(sum(map(len, pods_by_policy.values())), "pod", "was")
        policy = self._policy()
        current = policy.digest[:_SHOWN_DIGITS] if policy is not None else ""
        return reason.Reason(
            PlacementCode.POLICIES_DIFFER,
            f"{pods_count} admitted under {len(versions)} versions of the policy: {'; '.join(versions)}; their "
            "injected settings may differ",
            fix=f"recreate the pods that are not under the current version, {current}",
        )


def _find_fabric(pod: object_info.PodInfo | None, policy: policies.Policy | None) -> tuple[str, policies.Fabric | None]:
    if pod is None or pod.reduced is None or policy is None:
        return "", None
    return intent.find_fabric(pod.reduced, policy.document)


def _find_pod_with_rails(
    pods: Sequence[object_info.PodInfo], policy: policies.Policy | None
) -> object_info.PodInfo | None:
    """Return the first pod that has rails, otherwise the first. A driver pod may have no rails, and another fabric."""
    for pod in pods:
        fabric = _find_fabric(pod, policy)[1]
        if fabric is None or pod.reduced is None:
            continue
        rails = [rail.name for rail in fabric.rails]
        if intent.find_requested_devices(pod.requests, fabric.rails) or intent.find_rails(pod.reduced, rails):
            return pod
    return next(iter(pods), None)


# --- placed -------------------------------------------------------------------------------------------------


def _assess_placed_gang(
    gang: GangMembers,
    request: scheduling_request.SchedulingRequest,
    placement_engine: engine.PlacementEngine,
    cluster: cluster_state.ClusterState,
) -> overview_types.Assessment:
    index = placement_engine.get_index(request)
    members = [
        msgspec.structs.replace(pod, node=member.node)  # the cluster state does not have the node of an assumed pod
        for member in gang.members
        if member.node and (pod := cluster.pods.get(member.uid))
    ]
    workers = placement_result.select_workers(members, request.devices)
    placed_pods = _list_placed_pods(workers, index, cluster)
    placement = placement_result.compute_placement(placed_pods, index.uplinks)
    bandwidth = round(placement.bandwidth, 3) or None  # 0 if they have none of the rails that the policy now names
    if not request.domains or bandwidth is None:
        why = (*(() if request.domains else (_DOMAINS_UNDEFINED,)), *placement.causes)
        return overview_types.Assessment(state=gang.state, bandwidth=bandwidth, why=why)
    without_gang = {pod.node: pod.node_class for pod in placed_pods if pod.node_class is not None}
    overrides = index.find_classes_of_unselected(request) | without_gang
    if index.kind.is_single_pod:
        plan = decisions.plan_single_pod(node_index.RequestView(request, index, overrides))
    else:
        capacity = planner.build_capacity_on(index, index.count_classes(), overrides)
        segment = max(1, min(request.segment, len(workers)))
        plan = planner.plan_gang(len(workers), msgspec.structs.replace(capacity, segment=segment))
    is_spread = plan.is_complete and (
        plan.bandwidth > placement.bandwidth + _MIN_DIFFERENCE
        or (plan.bandwidth >= placement.bandwidth - _MIN_DIFFERENCE and len(plan.leaves) < len(placement.leaves))
    )
    leaves = len(placement.leaves)
    return overview_types.Assessment(
        state=overview_types.SPREAD if is_spread and gang.state == overview_types.PLACED else gang.state,
        bandwidth=bandwidth,
        best=round(max(placement.bandwidth, plan.bandwidth if is_spread else 0.0), 3),
        leaves=leaves,
        min_leaves=min(leaves, len(plan.leaves)) if is_spread else leaves,
        why=(*((_explain_better_plan(placement, plan),) if is_spread else ()), *placement.causes),
    )


def _explain_better_plan(placement: placement_result.PlacementResult, plan: planner.Plan) -> reason.Reason:
    pods, leaves = (
        text.format_count(sum(placement.leaves.values()), "pod"),
        text.format_count(len(placement.leaves), "leaf"),
    )
    message = (
        f"{pods} on {leaves} ({node_explainer.format_counts_by_leaf(placement.leaves.items())}) with "
        f"{placement.bandwidth:.2f} of full bandwidth (modelled); recreated now, the gang could have "
        f"{plan.bandwidth:.2f} on {_format_leaves(plan.leaves)}"
    )
    return reason.Reason(PlacementCode.BETTER_PLAN, message)


def _format_leaves(leaves: Sequence[topology.Domain]) -> str:
    return f"{text.format_count(len(leaves), 'leaf')} ({node_explainer.format_leaves(leaves)})"


def _list_placed_pods(
    workers: Sequence[object_info.PodInfo], index: node_index.NodeIndex, cluster: cluster_state.ClusterState
) -> list[placement_result.PlacedPod]:
    by_node: dict[str, list[object_info.PodInfo]] = defaultdict(list)
    for pod in workers:
        by_node[pod.node].append(pod)
    classes = {
        node: _evaluate_without_gang(node, members, index, cluster)
        for node, members in by_node.items()
        if node in cluster.nodes
    }
    return [
        placement_result.PlacedPod(
            node=pod.node,
            leaf=index.leaf_by_node.get(pod.node, topology.NO_DOMAIN),
            node_class=classes.get(pod.node),
            number=by_node[pod.node].index(pod) + 1,
        )
        for pod in workers
    ]


def _evaluate_without_gang(
    node: str,
    members: Sequence[object_info.PodInfo],
    index: node_index.NodeIndex,
    cluster: cluster_state.ClusterState,
) -> node_evaluation.NodeClass:
    """Evaluate a node as if the gang's pods on it, and those that are being deleted, did not exist."""
    ending = [pod for pod in cluster.list_pods_on(node) if pod.is_ending]
    absent = {pod.uid for pod in (*members, *ending)}
    return index.find_class_without(node, absent, eligible=True)


# --- waiting ------------------------------------------------------------------------------------------------


def _assess_waiting_gang(
    gang: GangMembers,
    request: scheduling_request.SchedulingRequest,
    placement_engine: engine.PlacementEngine,
) -> overview_types.Assessment:
    refusals = placement_engine.find_refusals(request)
    if refusals and len(refusals) == len(request.nodes):
        return overview_types.Assessment(state=gang.state, why=tuple(dict.fromkeys(refusals.values()))[:_MAX_REFUSALS])
    decision = placement_engine.score(request)
    diagnosis, plan = placement_engine.explain_plan(decision), decision.plan
    peer_leaves = [leaf for leaf, peers in decision.peers_by_leaf.items() if peers and leaf]
    if not diagnosis.fits:
        state = overview_types.NEVER if diagnosis.never_fits else gang.state
        return overview_types.Assessment(
            state=state, leaves=len(peer_leaves), min_leaves=diagnosis.min_leaves, why=diagnosis.why
        )
    where = f", on {_format_leaves(plan.leaves)}" if decision.has_domains else ""
    selected = ", if their node selectors allow it" if request.is_filtered else ""  # all nodes were counted
    fitting = text.format_count(decision.gang.unplaced, "remaining pod", "fits")
    message = f"the {fitting} now{where}{selected}; the scheduler has not placed them"
    why = (reason.Reason(PlacementCode.FITS_NOW, message), *diagnosis.why)
    if not decision.has_domains:
        return overview_types.Assessment(state=gang.state, why=why)
    leaves = dict.fromkeys((*peer_leaves, *plan.leaves))
    return overview_types.Assessment(
        state=gang.state,
        best=round(plan.bandwidth, 3),
        leaves=len(leaves),
        min_leaves=diagnosis.min_leaves or len(leaves),
        why=why,
    )


def _describe_missing_pods(gang: GangMembers) -> tuple[reason.Reason, ...]:
    missing = gang.size - len(gang.members)
    if not missing:
        return ()
    pods = text.format_count(gang.size, "pod", "does", part=missing).replace(" of ", " of its ")
    return (reason.Reason(PlacementCode.PODS_MISSING, f"{pods} not exist yet"),)
