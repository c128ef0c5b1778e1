"""Posts Events on the policy's ConfigMap while the policy in it is invalid.

Defines the messages. `railwright.cluster.policies` reads the policy and finds its errors.
"""

from collections.abc import Callable

from railwright.cluster import events, installed_names, policies

INVALID, IN_FORCE = "PolicyInvalid", "PolicyInForce"  # stable


class PolicyEvents:
    """Subscriber of the policy store: posts the errors of an invalid policy, and one Event when it is valid again."""

    def __init__(self, poster: events.Events, get_uid: Callable[[], str]) -> None:
        """`get_uid` returns the uid of the ConfigMap as last observed."""
        self._poster = poster
        self._get_uid = get_uid
        self._is_invalid = False

    def __call__(self, store: policies.PolicyStore) -> None:
        """Post what a change of the store requires."""
        if store.valid:
            if self._is_invalid:
                self._post(warning=False, reason=IN_FORCE, message="the policy is valid again")
            self._is_invalid = False
            return
        self._is_invalid = True
        effect = "the last valid policy stays in force" if store.current else "there is no policy in force"
        error_list = "; ".join(str(error) for error in store.errors)
        self._post(warning=True, reason=INVALID, message=f"{effect}; {error_list}")

    def _post(self, *, warning: bool, reason: str, message: str) -> None:
        involved = events.Involved(
            kind="ConfigMap",
            api_version="v1",
            namespace=installed_names.NAMESPACE,
            name=installed_names.POLICY,
            uid=self._get_uid(),
        )
        self._poster.post(involved, warning=warning, reason=reason, message=message)
