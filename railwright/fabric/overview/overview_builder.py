"""Builds the overview of one cluster and keeps it current: only what changed is computed again.

Owns the order and the pace of that work. It runs in slices, so that it does not delay a server's requests. It reads the
cluster state, the assumed pods and the opted-in pods, and needs no clock.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import intent, resources, text, topology
from railwright.fabric.overview import (
    fabric_view,
    gang_assessment,
    gang_members,
    largest_gang,
    overview_types,
    pods_and_events,
)
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info, pod_usage
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import membership

MAX_RANKS = 4096  # of one gang; further ranks are not shown
_MAX_CHANGED = 16  # gangs with changed pods that one refresh assesses
_MAX_OUTDATED = 2  # other gangs that one refresh assesses again because the cluster changed

Policy = Callable[[], policies.Policy | None]


class _Assessed(NamedTuple):
    """An assessment, and what it is of."""

    version: int  # of the cluster
    gang: gang_members.GangMembers
    assessment: gang_assessment.Assessment


class OverviewBuilder:
    """The overview of one cluster. Not thread-safe: one event loop owns it."""

    def __init__(  # noqa: PLR0913 - the sources of an overview
        self,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
        pods: pods_and_events.OptedInPods,
        policy: Policy,
        pools: intent.Networks,
        *,
        notes: fabric_view.NodeNotes | None = None,
        events: pods_and_events.RecentEvents | None = None,
    ) -> None:
        """`pools`: the resource of each network, by (namespace, name). `events`: None if nothing reads them."""
        self._cluster, self._assumed, self._pods, self._policy, self._pools = cluster, assumed, pods, policy, pools
        self._notes, self._event_rows = notes, events
        self._assessor = gang_assessment.Assessor(cluster, assumed, pods, policy, pools)
        self._gang_index = gang_members.GangIndex(cluster, assumed, pods)
        self._policy_inputs: tuple[object, ...] = ()
        self._views: dict[str, fabric_view.FabricView] = {}
        self._positions: tuple[int, int] = (-1, -1)
        self._assessments: dict[membership.GangKey, _Assessed] = {}
        self._due: dict[membership.GangKey, None] = {}
        self._gangs: dict[membership.GangKey, overview_types.Gang] = {}
        self._admissions: tuple[int, Sequence[overview_types.Admission]] = (-1, ())
        self._events: tuple[int, Sequence[overview_types.Event]] = (-1, ())
        self._largest: dict[str, overview_types.LargestGang | None] = {}  # by fabric
        self._largest_version = -1  # version of the cluster that they were computed for
        self._pod_sizes: dict[str, resources.FrozenAmounts | None] = {}  # of the largest gangs, by fabric
        self._pod_sizes_version = -1  # version of the nodes that they were computed for

    # --- reading ----------------------------------------------------------------------------------------------

    def build_overview(self, *, source: str = "", problems: Sequence[str] = ()) -> overview_types.Overview:
        """Return the overview as of the last refresh. `problems`: what is wrong with its sources."""
        policy = self._policy()
        return overview_types.Overview(
            source=source,
            policy=policy.digest if policy else "",
            problems=problems,
            fabrics=[
                msgspec.structs.replace(view.summary, largest=self._largest.get(name))
                for name, view in self._views.items()
            ],
            leaves={key: view.leaves[key] for view in self._views.values() for key in view.summary.leaves},
            gangs=[self._gangs[key] for key in sorted(self._gangs, key=text.build_natural_key)],
            admissions=self._admissions[1],
            events=None if self._event_rows is None else self._events[1],
        )

    def explain(self, subject: str, node: str) -> dict[str, Any] | None:
        """Explain a node's score for a gang (by key) or a pod (namespace/name). Return None if node or pod is unknown.

        For a gang, the explanation is for the member on that node, else the first that waits, else the first.
        """
        pod = self._find_pod(membership.GangKey(subject), node)
        request = self._assessor.build_request(pod) if pod is not None else None
        if pod is None or request is None or node not in self._cluster.nodes:
            return None
        explainer, rows = self._assessor.engine.explain_nodes(self._assessor.engine.score(request), first=(node,))
        return {"pod": pod.key, "here": pod.node == node, **explainer.describe(rows[0])}

    def _find_pod(self, subject: membership.GangKey, node: str) -> object_info.PodInfo | None:
        gang = self._gang_index.gangs.get(subject)
        if gang is None:
            return next((pod for pod in self._cluster.pods.values() if pod.key == subject), None)
        chosen = min(gang.members, key=lambda member: (member.node != node, bool(member.node), member.rank))
        return self._cluster.pods.get(chosen.uid)

    # --- keeping current --------------------------------------------------------------------------------------

    def refresh(self, now: str = "") -> Iterator[None]:
        """Update the overview. Yields where the caller may run other work. Do not run two refreshes at once.

        `now`: RFC 3339, the time of rails that are seen degraded or dead for the first time.
        """
        everything = self._reload_policy()
        changed = self._gang_index.refresh()
        yield
        touched = self._list_touched_nodes(changed, everything=everything)
        for view in self._views.values():
            yield from view.refresh(touched, self._gang_index.ranks, now)
        yield from self._update_largest_gangs()
        assessed: dict[membership.GangKey, None] = {}
        for key in self._assess_gangs(changed, everything=everything):
            assessed[key] = None
            yield
        nodes_changed = touched is None or bool(touched)  # then the leaf of any member may have changed
        yield
        self._update_gangs(self._gang_index.gangs if nodes_changed else (*changed, *assessed))
        if self._admissions[0] != self._pods.admissions.rows.generation:
            self._admissions = (self._pods.admissions.rows.generation, self._pods.admissions.list_newest())
        if self._event_rows is not None and self._events[0] != self._event_rows.rows.generation:
            self._events = (self._event_rows.rows.generation, self._event_rows.list_newest())

    def refresh_fully(self) -> None:
        """Refresh until all gangs are assessed. For callers without other work."""
        while True:
            for _ in self.refresh():
                pass
            if self.is_settled:
                return

    def _reload_policy(self) -> bool:
        """Create the views again if the policy or the resources of networks changed. Return True if they did."""
        policy = self._policy()
        fabrics = {} if policy is None else policy.document.fabrics
        counted = {
            name: intent.fill_resources(name, fabric, self._pools) for name, fabric in fabrics.items() if fabric.rails
        }
        inputs = (policy.digest if policy else "", counted)
        if inputs == self._policy_inputs:
            return False
        self._policy_inputs = inputs
        self._largest_version = -1
        own = {name: {rail.resource for rail in fabric.rails if rail.resource} for name, fabric in counted.items()}
        self._views = {
            name: fabric_view.FabricView(
                name,
                fabric,
                cluster=self._cluster,
                assumed=self._assumed,
                accelerators=policy.document.accelerators if policy else (),
                foreign_resources=set().union(*own.values()) - own[name],
                notes=self._notes,
            )
            for name, fabric in counted.items()
        }
        return True

    def _list_touched_nodes(
        self, changed: Collection[membership.GangKey], *, everything: bool
    ) -> Collection[str] | None:
        """Return the nodes that may have changed since the last refresh; None means all."""
        change_logs = (self._cluster.change_log, self._assumed.change_log)
        since = [log.read_since(position) for log, position in zip(change_logs, self._positions, strict=True)]
        self._positions = (change_logs[0].position, change_logs[1].position)
        changed_notes = self._notes.take_changed() if self._notes is not None else ()
        if everything or None in since:
            return None
        touched = {name: None for names in (*since, changed_notes) if names is not None for name in names}
        for key in changed:  # the ranks of its members may have changed
            for member in self._gang_index.gangs[key].members if key in self._gang_index.gangs else ():
                if member.node:
                    touched[member.node] = None
        return touched

    def _update_largest_gangs(self) -> Iterator[None]:
        """Compute the largest gang of each fabric if the cluster has changed. Yields after each fabric."""
        policy, now = self._policy(), self._version
        if self._largest_version == now or policy is None:
            return
        if self._pod_sizes_version != self._cluster.topology_version or self._largest_version == -1:
            self._pod_sizes_version = self._cluster.topology_version
            self._pod_sizes = {
                name: largest_gang.find_pod_size(view.fabric, view.nodes, self._cluster, policy)
                for name, view in self._views.items()
            }
            yield
        self._largest_version = now
        self._largest = {}
        for name, view in self._views.items():
            pod_size = self._pod_sizes[name]
            if pod_size is not None:
                self._largest[name] = largest_gang.compute_largest_gang(
                    name, view.nodes, pod_size, self._assessor.engine, policy, self._pools
                )
                yield

    # --- gangs ------------------------------------------------------------------------------------------------

    @property
    def _version(self) -> int:
        return self._cluster.version + self._assumed.change_log.position

    def _assess_gangs(
        self, changed: Collection[membership.GangKey], *, everything: bool
    ) -> Iterator[membership.GangKey]:
        """Assess changed gangs, then some outdated ones; yield each. The others keep their assessment."""
        gangs = self._gang_index.gangs
        for key in [key for key in self._assessments if key not in gangs]:
            del self._assessments[key]
        self._due = {key: None for key in (*self._due, *(gangs if everything else changed)) if key in gangs}
        now = self._version
        outdated = sorted(
            (assessed.version, key)
            for key, assessed in self._assessments.items()
            if assessed.version != now and key not in self._due
        )
        for key in (*[*self._due][:_MAX_CHANGED], *(key for _, key in outdated[:_MAX_OUTDATED])):
            self._due.pop(key, None)
            self._assessments[key] = _Assessed(now, gangs[key], self._assessor.assess(gangs[key]))
            yield key

    def _update_gangs(self, keys: Collection[membership.GangKey]) -> None:
        gangs = self._gang_index.gangs
        for key in [key for key in self._gangs if key not in gangs]:
            del self._gangs[key]
        for key in keys:
            if key in gangs:
                self._gangs[key] = self._describe_gang(gangs[key])

    @property
    def is_settled(self) -> bool:
        """True if every gang is assessed for the present cluster state."""
        now = self._version
        return not self._due and all(assessed.version == now for assessed in self._assessments.values())

    def _describe_gang(self, gang: gang_members.GangMembers) -> overview_types.Gang:
        assessed = self._assessments.get(gang.key)
        assessment = gang_assessment.Assessment(state=gang.state)
        if assessed is not None and assessed.gang == gang:  # else it is assessed again soon
            assessment = assessed.assessment
        described = self._assessor.describe(gang, assessment, colour=self._gang_index.colours[gang.key])
        view = self._views.get(described.fabric)
        ranks = tuple(self._describe_rank(member, view) for member in gang.members[:MAX_RANKS])
        return msgspec.structs.replace(described, ranks=ranks)

    def _describe_rank(self, member: gang_members.Member, view: fabric_view.FabricView | None) -> overview_types.Rank:
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
