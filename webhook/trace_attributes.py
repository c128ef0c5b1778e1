"""Trace attributes of an admission: the pod, its fabric and the decision, but no object, value or user.

Does not depend on OpenTelemetry.
"""

from railwright.fabric import views
from railwright.serving import tracing as traces
from webhook import answer, wire

_MAX_NAME = 253  # characters of a Kubernetes name; the API server validates names only after admission


def list_request(request: wire.Request[views.Pod]) -> traces.Attributes:
    """Return the attributes of a pod's review."""
    pod = request.object
    name = request.name or (pod.metadata.name or f"{pod.metadata.generate_name}*" if pod else "")
    return {
        traces.NAMESPACE: request.namespace,
        traces.POD: name[:_MAX_NAME],
        "railwright.dry_run": bool(request.dry_run),
    }


def list_answer(reply: answer.Answer) -> traces.Attributes:
    """Return the attributes of a decision."""
    attributes = {traces.FABRIC: reply.fabric, traces.DECISION: reply.outcome, traces.REASON: reply.reason}
    return {name: value for name, value in attributes.items() if value}
