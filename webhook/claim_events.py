"""Posts Events on pods whose claim templates cannot be written."""

from railwright.cluster import events
from railwright.fabric import views

NOT_WRITTEN = "ClaimTemplateNotWritten"  # stable: users filter by it


def post_failure(poster: events.Events, pod: views.Pod, template: str, cause: str) -> None:
    """Queue an Event on a pod that waits for a template."""
    metadata = pod.metadata
    involved = events.Involved(
        kind="Pod", api_version="v1", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
    )
    message = f"ResourceClaimTemplate {template}, which the pod waits for, is not written: {cause}"
    poster.post(involved, warning=True, reason=NOT_WRITTEN, message=message)
