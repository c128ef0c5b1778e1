"""What can go wrong between us and the API server: few classes, each with a reason and a fix in plain words.

`str(error)` is for logs and may name the path that was asked for. `error.sentence` is for people: it never holds a
path, a name of Python's or an address in memory. `railwright.cluster.failures` writes reasons and fixes.
"""


class ClusterError(Exception):
    """Base of all: the API server could not be used as asked."""

    def __init__(self, text: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text
        self.fix = fix

    @property
    def sentence(self) -> str:
        """The cause, then the fix, for the person who started the command."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


class ConfigurationError(ClusterError):
    """There is no usable kubeconfig or in-cluster account; the message says which file and what is wrong."""


class UnreachableError(ClusterError):
    """No answer: refused, reset, timed out, or ended in the middle."""


class SilentError(UnreachableError):
    """Nothing came on a watch for longer than it may be quiet: there was no news, or nobody is there any more."""


class ForeignError(ClusterError):
    """Somebody answered, and not as a Kubernetes API server does: another program, a proxy, a login page."""


class ApiError(ClusterError):
    """The API server answered with an error status. `foreign`: the answer was no Status of Kubernetes."""

    def __init__(  # noqa: PLR0913 - what an answer consists of
        self,
        status: int,
        reason: str,
        message: str,
        path: str,
        retry_after: float = 0.0,
        *,
        where: str = "the API server",
        foreign: bool = False,
    ) -> None:
        super().__init__(f"{path}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.path = path
        self.retry_after = retry_after  # seconds the server asks us to wait; 0 where it does not
        self.where = where
        self.foreign = foreign

    @property
    def sentence(self) -> str:
        """See ClusterError."""
        from railwright.cluster import failures  # noqa: PLC0415 - which knows these classes

        return failures.answered(self)
