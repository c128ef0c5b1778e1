"""Validity periods of certificates, and the waiting times of a rotation. Imports no cryptography."""

import datetime as dt

CA_VALIDITY = dt.timedelta(days=1825)  # the next CA is created when a third is left
SERVING_VALIDITY = dt.timedelta(days=30)  # renewed when a third is left, as those of clients
CLIENT_VALIDITY = dt.timedelta(days=365)
OVERLAP = dt.timedelta(days=30)  # for copies of the bundle that are read once or maintained by hand
# Until stored objects have reached everybody: kubelets poll Secrets every 60 to 120 s, and servers their files twice a
# second. API servers watch the webhook configurations.
PROPAGATION = dt.timedelta(seconds=180)
