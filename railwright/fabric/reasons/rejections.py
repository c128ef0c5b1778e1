"""Defines the error that ends a plan with a rejection. Its codes are those of `codes.RejectionCode`."""


class RefusedError(Exception):
    """Raised to end the plan of an injection with a Refusal. `reason` is one of the codes, `message` says the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
