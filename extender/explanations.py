"""Explains a pod on request: why it is on its node, or why its gang waits.

The explanation is computed from the present state, without the memory of gangs, so that every replica gives the same.
The devices of a running pod count as free. Its gang is assessed by `gang_assessment`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from extender import state as states
from railwright.fabric import intent, resources
from railwright.fabric.overview import gang_assessment, overview_types
from railwright.fabric.placement.state import object_info, pod_usage


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a pod, as in `/explain`."""

    pod: str
    node: str  # "" while it waits
    scheduler: str
    fabric: str
    needs: Sequence[str]
    devices: Sequence[pod_usage.HeldRail]  # of the rails that its claims hold now
    gang: overview_types.Gang  # without its ranks; a pod without a gang is alone in it
    candidate_nodes: int
    nodes: Sequence[dict[str, Any]]


class Explanations:
    """Explains the pods of this process's state."""

    def __init__(self, state: states.State, assessor: gang_assessment.Assessor) -> None:
        self._state, self._assessor = state, assessor

    def explain(self, namespace: str, name: str) -> Explanation | None:
        """Explain a pod. Return None if it does not exist, has ended, or did not opt in."""
        assessor, cluster = self._assessor, self._state.cluster
        pod = self._find_pod(namespace, name)
        request = assessor.build_request(pod) if pod is not None else None
        if pod is None or pod.reduced is None or request is None:
            return None
        rows = assessor.engine.explain_nodes(assessor.engine.score(request), first=[pod.node] if pod.node else ())
        members = assessor.list_members(pod)
        return Explanation(
            pod=pod.key,
            node=pod.node,
            scheduler=pod.reduced.spec.scheduler_name or "default-scheduler",
            fabric=request.fabric_name,
            needs=[
                f"{need.label}: {need.amount // resources.UNIT} {intent.format_resource(need.resource)}"
                for need in request.needs
            ],
            devices=pod_usage.list_held_rails(request.fabric, pod, cluster),
            gang=assessor.describe(members, assessor.assess(members)),
            candidate_nodes=len(request.nodes),
            nodes=sorted(rows, key=lambda row: ("rejection" in row, -row["score"], row["node"])),
        )

    def describe_unexplained(self, namespace: str, name: str) -> str:
        """Return why a pod is not explained."""
        undefined = self._assessor.describe_undefined_fabric(self._find_pod(namespace, name))
        return undefined.text if undefined else f"no opted-in pod {namespace}/{name} is known here"

    def _find_pod(self, namespace: str, name: str) -> object_info.PodInfo | None:
        key = f"{namespace}/{name}"
        return next((pod for pod in self._state.cluster.pods.values() if pod.key == key), None)
