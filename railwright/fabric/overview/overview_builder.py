"""Builds the overview of one cluster and keeps it current.

The builder runs only when something has changed, in slices that do not delay a server's requests. It reads the cluster
state, and needs no clock.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import intent, text, topology
from railwright.fabric.overview import (
    fabric_view,
    gang_assessment,
    overview_types,
)
from railwright.fabric.placement.state import cluster_state, object_info, pod_usage
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import membership

MAX_RANKS = 4096  # of one gang; further ranks are not shown
_MAX_ASSESSED = 32  # gangs that a refresh assesses: each takes milliseconds

Policy = Callable[[], policies.Policy | None]


class _CachedAssessment(NamedTuple):
    """An assessment with the gang and the cluster versions that it depends on."""

    version: int  # of the sources
    gang: gang_assessment.GangMembers
    assessment: overview_types.Assessment


class OverviewBuilder:
    """The overview of one cluster. Not thread-safe: one event loop owns it."""

    def __init__(
        self,
        cluster: cluster_state.ClusterState,
        policy: Policy,
        pools: intent.Networks,
    ) -> None:
        """`pools`: the resource of each network, by (namespace, name)."""
        self._cluster, self._policy, self._pools = cluster, policy, pools
        self._assessor = gang_assessment.Assessor(cluster, policy, pools)
        self._inputs: tuple[object, ...] = ()  # of the members and the views
        self._version = 0  # increases when the inputs change
        self._policy_inputs: tuple[object, ...] = ()  # of the views
        self._views: dict[str, fabric_view.FabricView] = {}
        self._members: dict[membership.GangKey, gang_assessment.GangMembers] = {}
        self._colours: dict[membership.GangKey, int] = {}
        self._assessments: dict[membership.GangKey, _CachedAssessment] = {}
        self._gangs: dict[membership.GangKey, overview_types.Gang] = {}

    # --- reading ----------------------------------------------------------------------------------------------

    def build_overview(self, *, source: str = "", problems: Sequence[str] = ()) -> overview_types.Overview:
        """Return the overview as of the last refresh. `problems` are those of its sources."""
        policy = self._policy()
        return overview_types.Overview(
            source=source,
            policy=policy.digest if policy else "",
            problems=problems,
            fabrics=[view.summary for view in self._views.values()],
            leaves={key: leaf for view in self._views.values() for key, leaf in view.leaves.items()},
            gangs=[self._gangs[key] for key in sorted(self._gangs, key=text.build_natural_key)],
        )

    def explain_node_score(self, subject: str, node: str) -> dict[str, Any] | None:
        """Explain a node's score for a gang (by key) or a pod (namespace/name). Return None if node or pod is unknown.

        For a gang, the member on that node is explained, otherwise the first that waits, otherwise the first.
        """
        pod = self._find_pod(membership.GangKey(subject), node)
        request = self._assessor.build_request(pod) if pod is not None else None
        if pod is None or request is None or node not in self._cluster.nodes:
            return None
        row = next(row for row in self._assessor.engine.explain_nodes(request, node) if row.node == node)
        return {"pod": pod.key, "here": pod.node == node, **msgspec.to_builtins(row)}

    def _find_pod(self, subject: membership.GangKey, node: str) -> object_info.PodInfo | None:
        gang = self._members.get(subject)
        if gang is None:
            return self._assessor.find_pod(subject)
        chosen = min(gang.members, key=lambda member: (member.node != node, bool(member.node), member.rank))
        return self._cluster.pods.get(chosen.uid)

    # --- keeping current --------------------------------------------------------------------------------------

    def refresh(self, limit: int = _MAX_ASSESSED) -> Iterator[None]:
        """Update the overview, and assess at most `limit` gangs: the changed ones, then those assessed longest ago.

        Yields where the caller may run other work. Do not run two refreshes at once.
        """
        self._reload_policy()
        inputs = self._policy_inputs, self._cluster.version, self._cluster.change_log.position
        assessed = {key: item.version for key, item in self._assessments.items()}
        if inputs == self._inputs and all(assessed.get(key) == self._version for key in self._members):
            return
        if inputs != self._inputs:
            self._inputs, self._version = inputs, self._version + 1
            self._members = gang_assessment.list_gangs(self._cluster)
            self._colours = gang_assessment.assign_colours(self._colours, self._members)
            yield
            ranks = {pod.uid: (key, pod.rank) for key, gang in self._members.items() for pod in gang.members}
            for view in self._views.values():
                yield from view.refresh(ranks)
        yield from self._assess_gangs(limit)
        gangs = {}
        for key, gang in self._members.items():
            gangs[key] = self._describe_gang(gang)
            yield
        self._gangs = gangs

    def refresh_fully(self) -> None:
        """Update the overview and assess all gangs, without pauses for other work."""
        for _ in self.refresh(gang_assessment.MAX_GANGS):
            pass

    def _reload_policy(self) -> None:
        """Create the views again if the policy or the resources of networks changed."""
        policy = self._policy()
        fabrics = {} if policy is None else policy.document.fabrics
        counted = {
            name: intent.fill_resources(name, fabric, self._pools) for name, fabric in fabrics.items() if fabric.rails
        }
        inputs = (policy.digest if policy else "", counted)
        if inputs == self._policy_inputs:
            return
        self._policy_inputs = inputs
        own = {name: {rail.resource for rail in fabric.rails if rail.resource} for name, fabric in counted.items()}
        self._views = {
            name: fabric_view.FabricView(
                name,
                fabric,
                cluster=self._cluster,
                accelerators=policy.document.accelerators if policy else (),
                foreign_resources=set().union(*own.values()) - own[name],
            )
            for name, fabric in counted.items()
        }

    # --- gangs ------------------------------------------------------------------------------------------------

    def _assess_gangs(self, limit: int) -> Iterator[None]:
        self._assessments = {
            key: assessed for key, assessed in self._assessments.items() if self._members.get(key) == assessed.gang
        }
        ages = {key: self._assessments[key].version if key in self._assessments else -1 for key in self._members}
        for key in sorted(ages, key=lambda key: (ages[key], key))[:limit]:
            if ages[key] != self._version:
                gang = self._members[key]
                self._assessments[key] = _CachedAssessment(self._version, gang, self._assessor.assess_gang(gang))
                yield

    def _describe_gang(self, gang: gang_assessment.GangMembers) -> overview_types.Gang:
        assessed = self._assessments.get(gang.key)  # None: it is assessed soon
        assessment = assessed.assessment if assessed else overview_types.Assessment(state=gang.state)
        described = self._assessor.describe_gang(gang, assessment, colour=self._colours[gang.key])
        view = self._views.get(described.fabric)
        ranks = tuple(self._describe_rank(member, view) for member in gang.members[:MAX_RANKS])
        return msgspec.structs.replace(described, ranks=ranks)

    def _describe_rank(
        self, member: gang_assessment.Member, view: fabric_view.FabricView | None
    ) -> overview_types.Rank:
        leaf = view.get_leaf(member.node) if view is not None and member.node else topology.NO_DOMAIN
        pod = self._cluster.pods.get(member.uid)
        return overview_types.Rank(
            rank=member.rank,
            pod=member.key.partition("/")[2],
            node=member.node,
            leaf=topology.format_domain(leaf) if leaf else "",
            assumed=member.assumed,
            rails=pod_usage.list_held_rails(view.fabric, pod, self._cluster) if view is not None else (),
        )
