"""Logs failures of a watch, and objects that cannot be decoded, each once and with its fix."""

import logging

from railwright.cluster import errors, resources, watch_wire

_MAX_LOGGED = 1000  # undecodable objects remembered, to log each once
_log = logging.getLogger("railwright.cluster")


class FailureLog:
    """The failures of the watch of one kind that were logged."""

    def __init__(self, kind: resources.Kind) -> None:
        self._kind = kind
        self._last_logged = ""
        self._undecodable: dict[watch_wire.Key, str] = {}  # the logged errors by object

    def log_failure(self, error: Exception) -> None:
        """Log a failure once, until it changes or the watch works again."""
        text = str(error)
        if text == self._last_logged:
            return
        self._last_logged = text
        fields = {"kind": self._kind.name, "error": text, "fix": _suggest_fix(error, self._kind)}
        _log.warning("watch failed", extra={"fields": fields})

    def forget_failure(self) -> None:
        """Log the next failure also if it is the same: the watch has worked in between."""
        self._last_logged = ""

    def log_undecodable(self, identity: watch_wire.Identity, error: Exception) -> None:
        """Log an object that cannot be decoded, once for each error."""
        text = f"{type(error).__name__}: {error}"
        if self._undecodable.get(identity.key) == text or len(self._undecodable) >= _MAX_LOGGED:
            return
        self._undecodable[identity.key] = text
        fields = {"kind": self._kind.name, "object": str(identity), "error": text}
        _log.warning("object skipped: it cannot be decoded; its last known state stays", extra={"fields": fields})

    def forget_undecodable(self, key: watch_wire.Key) -> None:
        """Forget the error of an object that can be decoded again or is gone."""
        self._undecodable.pop(key, None)


def _suggest_fix(error: Exception, kind: resources.Kind) -> str:
    status = error.status if isinstance(error, errors.ApiError) else 0
    resource = kind.path.rpartition("/")[2]
    role = f"the account needs the verbs list and watch on {resource} ({kind.path}): apply the roles of manifests/base"
    return {
        401: "the account's credentials are not accepted: check the kubeconfig or the service account token",
        403: role,
        404: f"the API server does not know {kind.path}: check the server's version, and that the kubeconfig is for it",
    }.get(status, "the cache keeps its objects and the watch is retried")
