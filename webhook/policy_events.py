"""Events on the policy ConfigMap: a policy that is not in force is told where its author looks.

Owns the wording. When a policy is read, and what is wrong with it, is `railwright.cluster.policies`'.
"""

from collections.abc import Callable

from railwright.cluster import events, policies
from railwright.fabric import names
from webhook import policies as validation


class PolicyEvents:
    """Called by the store after every read; tells of what is wrong, and once that it is right again."""

    def __init__(self, posting: events.Events, uid_of: Callable[[], str]) -> None:
        """`uid_of` tells the uid of the ConfigMap last seen."""
        self._posting = posting
        self._uid_of = uid_of
        self._wrong = False

    def __call__(self, store: policies.PolicyStore) -> None:
        """The store has changed."""
        if store.valid:
            if self._wrong:
                self._post(warning=False, reason="PolicyInForce", message="the policy is valid again")
            self._wrong = False
            return
        self._wrong = True
        standing = "the last good policy stays in force" if store.current else "there is no policy in force"
        told = "; ".join(validation.line(error) for error in store.errors)
        self._post(warning=True, reason="PolicyInvalid", message=f"{standing}; {told}")

    def _post(self, *, warning: bool, reason: str, message: str) -> None:
        about = events.Involved(
            kind="ConfigMap",
            api_version="v1",
            namespace=names.NAMESPACE,
            name=names.POLICY_CONFIGMAP,
            uid=self._uid_of(),
        )
        self._posting.post(about, warning=warning, reason=reason, message=message)
