"""The metrics of the rotator, in a registry of their own.

An expiry is a timestamp, as is usual for Prometheus, and also the seconds left by this process's clock.
"""

import datetime as dt

import prometheus_client
from cryptography import x509
from prometheus_client import exposition, registry

from certs import installation

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST


class Gauges:
    """Counters and gauges of the rotator. Only the leader reports certificates, so that a sum counts each once."""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry()
        self._expiry = self._build_gauge(
            "expiry_timestamp_seconds", "Time at which a stored certificate expires.", "certificate"
        )
        self._left = self._build_gauge(
            "seconds_left", "Seconds until a stored certificate expires, by this process's clock.", "certificate"
        )
        self._cas = self._build_gauge("trusted_cas", "Number of CAs in the bundle; 2 during a change of the CA.")
        self.leading = self._build_gauge("leading", "1 while this replica holds the Lease.")
        self.last_success = self._build_gauge(
            "last_success_timestamp_seconds", "Time at which this replica last found nothing to do."
        )
        self.steps = prometheus_client.Counter(
            "railwright_certs_steps", "Steps that rotations have made.", ["step"], registry=self.registry
        )
        self.failures = prometheus_client.Counter(
            "railwright_certs_failures", "Checks and steps that failed.", registry=self.registry
        )
        prometheus_client.ProcessCollector(registry=self.registry)

    def report(self, state: installation.ClusterState, now: dt.datetime) -> None:
        """Set the gauges of certificates."""
        for name, pair in state.pairs.items():
            try:
                expiry = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc
            except ValueError:
                continue  # the next step replaces it
            self._expiry.labels(name).set(expiry.timestamp())
            self._left.labels(name).set((expiry - now).total_seconds())
        self._cas.set(len(state.observed.keyring.trusted))

    def clear(self) -> None:
        """Remove the gauges of certificates, because another replica leads and reports them."""
        self._expiry.clear()
        self._left.clear()
        self._cas.set(0)

    def format_exposition(self) -> bytes:
        """Return the text of /metrics."""
        return exposition.generate_latest(self.registry)

    def _build_gauge(self, name: str, text: str, *labels: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(f"railwright_certs_{name}", text, labels, registry=self.registry)
