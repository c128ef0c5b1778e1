"""Validity periods of certificates, and the waiting times of a rotation. Imports no cryptography."""

import dataclasses
import datetime as dt

URGENT = 1 / 6  # of the CA's validity period: if less is left, the switch to the next CA does not wait for `overlap`


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Validity periods, and waiting times between steps. Raises ValueError for a combination that cannot work."""

    ca: dt.timedelta = dt.timedelta(days=1825)
    serving: dt.timedelta = dt.timedelta(days=30)
    client: dt.timedelta = dt.timedelta(days=365)
    overlap: dt.timedelta = dt.timedelta(days=30)  # for copies of the bundle that are read once or maintained by hand
    settle: dt.timedelta = dt.timedelta(seconds=10)  # API servers watch the webhook configurations
    # kubelets poll Secrets every 60 to 120 s, servers their files every 5 s
    propagation: dt.timedelta = dt.timedelta(seconds=180)

    def __post_init__(self) -> None:
        if self.ca * URGENT < self.overlap:
            overlap, validity = _format_duration(self.overlap), _format_duration(self.ca)
            raise ValueError(
                f"an overlap of {overlap} is longer than a sixth of the CA's validity of {validity}; "
                "shorten the overlap or lengthen the CA's validity"
            )


def _format_duration(span: dt.timedelta) -> str:
    return f"{span.days} d" if span.days else f"{span.total_seconds():g} s"
