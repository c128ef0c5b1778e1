"""What can go wrong between us and the API server: few classes, with what a person needs to mend it."""


class ClusterError(Exception):
    """Base of all: the API server could not be used as asked."""


class ConfigurationError(ClusterError):
    """There is no usable kubeconfig or in-cluster account; the message says which file and what is wrong."""


class UnreachableError(ClusterError):
    """No answer: refused, reset, timed out, or ended in the middle."""


class SilentError(UnreachableError):
    """Nothing came on a watch for longer than it may be quiet: there was no news, or nobody is there any more."""


class ApiError(ClusterError):
    """The API server answered with an error status."""

    def __init__(self, status: int, reason: str, message: str, path: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{path}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.path = path
        self.retry_after = retry_after  # seconds the server asks us to wait; 0 where it does not
