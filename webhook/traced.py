"""What a trace says of an admission: whose pod, which fabric, what was decided. No object, no value, no user.

Owns the names of the steps and which facts of a request are shown. Knows no OpenTelemetry.
"""

from railwright.fabric import views
from railwright.serving import tracing as traces
from webhook import answer, pods, wire


def steps(tracing: traces.Tracing) -> pods.Steps:
    """The parts of the admission of a pod, each a step of the trace."""
    return pods.Steps(
        decode=tracing.step("decode", pods.PLAIN.decode, _of_request),
        plan=tracing.step("plan", pods.PLAIN.plan),
        patch=tracing.step("patch", pods.PLAIN.patch),
    )


def of_answer(given: answer.Answer) -> traces.Attributes:
    """What was decided."""
    shown = {traces.FABRIC: given.fabric, traces.DECISION: given.outcome, traces.REASON: given.reason}
    return {name: value for name, value in shown.items() if value}


def _of_request(request: wire.Request[views.Pod]) -> traces.Attributes:
    pod = request.object
    name = request.name or (pod.metadata.name or f"{pod.metadata.generate_name}*" if pod else "")
    return {
        traces.NAMESPACE: request.namespace,
        traces.POD: name[:_LONGEST],
        "railwright.dry_run": bool(request.dry_run),
    }


_LONGEST = 253  # characters of a Kubernetes name; what is longer is not checked yet and will be refused
