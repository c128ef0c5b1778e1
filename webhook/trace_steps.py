"""Trace attributes of an admission: the pod, its fabric and the decision, but no object, value or user.

Defines the names of the steps and the attributes of each. Does not depend on OpenTelemetry.
"""

from railwright.fabric import views
from railwright.serving import tracing as traces
from webhook import answer, pods, wire

_MAX_NAME = 253  # characters of a Kubernetes name; the API server validates names only after admission


def build_steps(tracing: traces.Tracing) -> pods.Steps:
    """Return the steps of a pod's admission, each recorded in the trace."""
    return pods.Steps(
        decode=tracing.wrap_step("decode", pods.UNTRACED.decode, _list_request_attributes),
        plan=tracing.wrap_step("plan", pods.UNTRACED.plan),
        patch=tracing.wrap_step("patch", pods.UNTRACED.patch),
    )


def list_answer_attributes(reply: answer.Answer) -> traces.Attributes:
    """Return the attributes of a decision."""
    attributes = {traces.FABRIC: reply.fabric, traces.DECISION: reply.outcome, traces.REASON: reply.reason}
    return {name: value for name, value in attributes.items() if value}


def _list_request_attributes(request: wire.Request[views.Pod]) -> traces.Attributes:
    pod = request.object
    name = request.name or (pod.metadata.name or f"{pod.metadata.generate_name}*" if pod else "")
    return {
        traces.NAMESPACE: request.namespace,
        traces.POD: name[:_MAX_NAME],
        "railwright.dry_run": bool(request.dry_run),
    }
