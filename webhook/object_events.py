"""Posts Events on objects that their authors look at.

About pods, on the object that creates them, because a rejected pod is never stored; about claim templates, on the pods
that wait for them; about the policy, on the ConfigMap or FabricPolicy that holds it.
"""

from collections.abc import Callable

from railwright.cluster import events, installed_names, policies, sources
from railwright.fabric import names, views
from webhook import reviews

# stable: users filter by them
NOT_WRITTEN = "ClaimTemplateNotWritten"
NOT_COPIED = "ConfigMapNotCopied"
REFUSED, WARNED = "FabricRefused", "FabricWarning"
INVALID, IN_FORCE, OVERRIDDEN = "PolicyInvalid", "PolicyInForce", "PolicyOverridden"

_RESOURCE = f"{names.POLICY_KIND} {installed_names.NAMESPACE}/{installed_names.POLICY}"


def post_failure(poster: events.Events, pod: views.Pod, written: str, cause: str, *, reason: str = NOT_WRITTEN) -> None:
    """Queue an Event on a pod that waits for an object, `written` with its kind, such as a claim template.

    The pod may stand for a Workload of Kueue, which then has the Event.
    """
    kind, metadata = pod.kind or "Pod", pod.metadata  # objects of a list have no kind
    message = f"{written}, which the {kind} waits for, is not written: {cause}"
    involved = events.Involved(kind, pod.api_version or "v1", metadata.namespace, metadata.name, metadata.uid)
    poster.post(involved, warning=True, reason=reason, message=message)


def build_sink(poster: events.Events | None) -> Callable[[reviews.EventRecord], None]:
    """Return a function that queues one Event for each message about a pod, or does nothing without an API server.

    A pod without a controller gets no Event: its creator has read the same message in the response. A success without
    warnings gets no Event either.
    """

    def post(record: reviews.EventRecord) -> None:
        if poster is None:
            return
        owner = record.owner
        involved = events.Involved(owner.kind, owner.api_version, record.namespace, owner.name, owner.uid)
        reason = REFUSED if record.rejected else WARNED
        for message in record.messages:
            poster.post(involved, warning=True, reason=reason, message=message)

    return post


class PolicyEvents:
    """Posts the errors of an invalid policy, one Event when it is valid again, and one when the ConfigMap has no effect
    or has an effect again.
    """

    def __init__(self, poster: events.Events, store: policies.PolicyStore, objects: sources.PolicyObjects) -> None:
        """Subscribe to the store and to the objects."""
        self._poster = poster
        self._objects = objects
        self._is_invalid = False
        self._overridden: views.ConfigMap | None = None  # as of the last Event about it
        store.subscribe(self._report_validity)
        objects.subscribe(self._report_override)

    def _report_validity(self, store: policies.PolicyStore) -> None:
        resource = self._objects.resource.current
        involved = (
            _refer_to_config_map(self._objects.config_map.current)
            if resource is None
            else _refer(names.POLICY_KIND, names.POLICY_API_VERSION, resource.metadata.uid)
        )
        if store.valid:
            if self._is_invalid:
                self._poster.post(involved, warning=False, reason=IN_FORCE, message="the policy is valid again")
            self._is_invalid = False
            return
        self._is_invalid = True
        effect = "the last valid policy stays in force" if store.current else "there is no policy in force"
        has_more = len(store.errors) > policies.MAX_ERRORS
        count = f"{policies.format_count(store.errors)}: " if has_more else ""
        error_list = "; ".join(str(error) for error in store.errors)
        self._poster.post(involved, warning=True, reason=INVALID, message=f"{effect}; {count}{error_list}")

    def _report_override(self, objects: sources.PolicyObjects) -> None:
        """Post an Event when the ConfigMap starts or ceases to be overridden, and when it changes meanwhile."""
        config_map = objects.config_map.current
        if objects.is_overridden:
            if config_map != self._overridden:
                message = (
                    f"{_RESOURCE} is in force: while it exists, this ConfigMap has no effect. Edit or delete the"
                    f" {names.POLICY_KIND}"
                )
                self._poster.post(_refer_to_config_map(config_map), warning=True, reason=OVERRIDDEN, message=message)
            self._overridden = config_map
        elif self._overridden is not None:
            self._overridden = None
            if config_map is not None:
                message = f"{_RESOURCE} was deleted: this ConfigMap has an effect again"
                self._poster.post(_refer_to_config_map(config_map), warning=False, reason=IN_FORCE, message=message)


def _refer_to_config_map(config_map: views.ConfigMap | None) -> events.Involved:
    """Return a reference to the ConfigMap. Without its uid, `kubectl describe` does not show the Event."""
    return _refer("ConfigMap", "v1", "" if config_map is None else config_map.metadata.uid)


def _refer(kind: str, api_version: str, uid: str) -> events.Involved:
    return events.Involved(kind, api_version, installed_names.NAMESPACE, installed_names.POLICY, uid)
