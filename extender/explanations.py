"""Explains a pod on request: why it is on its node, or why its gang waits.

The explanation is computed from the present state, without the memory of gangs, so that every replica gives the same.
The devices of a running pod count as free. Its gang is assessed by `gang_assessment`.
"""

from railwright.fabric import intent, resources
from railwright.fabric.overview import gang_assessment, overview_types
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import pod_usage


def explain_pod(key: str, assessor: gang_assessment.Assessor) -> overview_types.Explanation | str:
    """Explain a pod (namespace/name). Return a sentence if it is unknown, ended, not opted in, or without fabric."""
    pod = assessor.find_pod(key)
    request = assessor.build_request(pod) if pod is not None else None
    if pod is None or pod.reduced is None or request is None:
        undefined = assessor.describe_undefined_fabric(pod)
        return undefined.text if undefined else f"no opted-in pod {key} is known here"
    members = assessor.list_members(pod)
    return overview_types.Explanation(
        pod=pod.key,
        node=pod.node,
        scheduler=pod.reduced.spec.scheduler_name or "default-scheduler",
        fabric=request.fabric_name,
        needs=[_describe_need(need, request) for need in request.needs],
        devices=pod_usage.list_held_rails(request.fabric, pod, assessor.cluster),
        gang=assessor.describe(members, assessor.assess(members)),
        candidate_nodes=len(request.nodes),
        nodes=assessor.engine.explain_nodes(request, pod.node),
    )


def _describe_need(need: intent.Need, request: scheduling_request.SchedulingRequest) -> str:
    """Return, as text, the rails of a need with the number of requested devices, or "not requested"."""
    resource = intent.format_resource(need.resource)
    if need.resource in request.unrequested and request.fabric.claims is None:  # such as `skip: devices`
        return f"{need.label}: {resource} (not requested)"
    return f"{need.label}: {need.amount // resources.UNIT} {resource}"
