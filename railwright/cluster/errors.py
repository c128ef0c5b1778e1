"""Errors of access to the API server: few classes, each with a reason and a fix.

`str(error)` is for logs and may contain the requested path. `error.sentence` is for people: it never contains a path,
a Python name or a memory address. `railwright.cluster.failures` writes reasons and fixes.
"""

from typing import NamedTuple


class ClusterError(Exception):
    """Base class: a request to the API server failed."""

    status = 0  # of the response, if the API server returned an error
    retry_after = 0.0  # seconds that the API server asks to wait

    def __init__(self, text: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text
        self.fix = fix

    @property
    def sentence(self) -> str:
        """The cause, then the fix, for the person who ran the command."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


class ConfigurationError(ClusterError):
    """There is no usable kubeconfig or in-cluster account; the message names the file and the problem."""


class UnreachableError(ClusterError):
    """No response: refused, reset, timed out, or truncated."""


class SilentError(UnreachableError):
    """A watch received nothing for longer than allowed: nothing changed, or the connection is dead."""


class ForeignError(ClusterError):
    """The response is not that of a Kubernetes API server but of another program, a proxy or a login page."""


class ErrorResponse(NamedTuple):
    """A response with an error status, and what was requested."""

    status: int
    reason: str  # such as NotFound
    message: str
    path: str
    retry_after: float = 0.0  # Retry-After in seconds; 0 if absent
    where: str = "the API server"
    foreign: bool = False  # the body was not a Kubernetes Status
    method: str = "GET"
    is_anonymous: bool = False  # the request had no credentials, because the kubeconfig has none


class ApiError(ClusterError):
    """The API server returned an error status. `foreign`: the body was not a Kubernetes Status."""

    def __init__(self, response: ErrorResponse, sentence: str) -> None:
        super().__init__(f"{response.path}: {response.status} {response.reason}: {response.message}")
        self.status = response.status
        self.reason = response.reason
        self.message = response.message
        self.retry_after = response.retry_after
        self.foreign = response.foreign
        self._sentence = sentence

    @property
    def sentence(self) -> str:
        """The cause, then the fix, for the person who ran the command."""
        return self._sentence
