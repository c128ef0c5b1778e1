"""Posts Events on the objects that users watch.

Events about pods are on the object that creates them, because a rejected pod is never stored. Events about claim
templates are on the pods that wait for them, and Events about the policy on its ConfigMap.
"""

from railwright.cluster import events, installed_names, policies
from railwright.fabric import text, views
from webhook import reviews

# stable: users filter by them
NOT_WRITTEN = "ClaimTemplateNotWritten"
REFUSED, WARNED = "FabricRefused", "FabricWarning"
INVALID, IN_FORCE = "PolicyInvalid", "PolicyInForce"
_MAX_MESSAGE = 4096  # characters: a message contains names that users write and that are not validated yet


def post_unwritten_template(poster: events.Events, pod: views.Pod, template: str, cause: str) -> None:
    """Queue an Event on a pod that waits for a claim template which could not be written."""
    metadata = pod.metadata
    message = f"the Pod waits for ResourceClaimTemplate {template}, which is not written: {cause}"
    involved = events.InvolvedObject("Pod", "v1", metadata.namespace, metadata.name, metadata.uid)
    poster.post(involved, warning=True, reason=NOT_WRITTEN, message=message)


def post_admission_events(poster: events.Events, answer: reviews.Answer) -> None:
    """Queue an Event on the pod's owner for the rejection, or for each warning.

    There is no Event for a pod without a controller: its creator reads the same message in the response. The message
    about a rejection does not name the pod, so that all pods of one owner share one Event.
    """
    owner = answer.owner
    if owner is None:
        return
    involved = events.InvolvedObject(owner.kind, owner.api_version, answer.namespace, owner.name, owner.uid)
    if answer.allowed:
        reason, messages = WARNED, [warning.line for warning in answer.warnings[: reviews.MAX_WARNINGS]]
    else:
        reason, messages = REFUSED, [f"{answer.reason}: {answer.problem or answer.message}"]
    for message in messages:
        poster.post(involved, warning=True, reason=reason, message=text.limit_message(message, _MAX_MESSAGE))


class PolicyEvents:
    """Posts an Event with the errors of an invalid policy, and one when the policy is valid again."""

    def __init__(self, poster: events.Events, store: policies.PolicyStore) -> None:
        """Post Events about each policy that the store reads."""
        self._poster = poster
        self._is_invalid = False
        store.subscribe(self._report_policy)

    def _report_policy(self, store: policies.PolicyStore) -> None:
        config_map = store.config_map
        # `kubectl describe` shows no Event without the UID; an equal error of a later version is another Event
        found = ("", "") if config_map is None else (config_map.metadata.uid, config_map.metadata.resource_version)
        involved = events.InvolvedObject("ConfigMap", "v1", installed_names.NAMESPACE, installed_names.POLICY, *found)
        if store.valid:
            if self._is_invalid:
                self._poster.post(involved, warning=False, reason=IN_FORCE, message="the policy is valid again")
            self._is_invalid = False
            return
        self._is_invalid = True
        effect = "the last valid policy stays in force" if store.current else "there is no policy in force"
        error_list = "; ".join(str(error) for error in store.errors)
        self._poster.post(involved, warning=True, reason=INVALID, message=f"{effect}; {error_list}")
