"""Validity periods of certificates, and the waiting times of a rotation. Imports no cryptography."""

import dataclasses
import datetime as dt

CA_VALIDITY = dt.timedelta(days=1825)  # the next CA is created when a third is left
SERVING_VALIDITY = dt.timedelta(days=30)  # renewed when a third is left, as those of clients
CLIENT_VALIDITY = dt.timedelta(days=365)
URGENT = 1 / 6  # of the CA's validity period: if less is left, the switch to the next CA does not wait for `overlap`


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Waiting times between steps. Raises ValueError for an overlap that cannot work."""

    overlap: dt.timedelta = dt.timedelta(days=30)  # for copies of the bundle that are read once or maintained by hand
    # Until stored objects have reached everybody: kubelets poll Secrets every 60 to 120 s, servers their files every
    # 5 s, and API servers watch the webhook configurations.
    propagation: dt.timedelta = dt.timedelta(seconds=180)

    def __post_init__(self) -> None:
        if self.overlap > CA_VALIDITY * URGENT:
            raise ValueError(
                f"an overlap of {self.overlap.days} d is longer than a sixth of the CA's validity of "
                f"{CA_VALIDITY.days} d; shorten it"
            )
