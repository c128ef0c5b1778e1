"""The metrics of the rotator, in a registry of their own.

Owns names and help. An expiry is shown as Prometheus wants it, a timestamp, and as the seconds left by our clock.
"""

import datetime as dt

import prometheus_client
from cryptography import x509
from prometheus_client import exposition, registry

from certs import installation

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST


class Gauges:
    """What the rotator counts and shows. Only the leader shows certificates, so that a sum counts each once."""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry()
        self._expiry = self._gauge("expiry_timestamp_seconds", "When a stored certificate ends.", "certificate")
        self._left = self._gauge(
            "seconds_left", "Until a stored certificate ends, by this process's clock.", "certificate"
        )
        self._authorities = self._gauge(
            "trusted_authorities", "Authorities in the bundle; 2 while one follows another."
        )
        self.leading = self._gauge("leading", "1 while this replica holds the Lease.")
        self.last_success = self._gauge("last_success_timestamp_seconds", "When this replica last saw all in order.")
        self.steps = prometheus_client.Counter(
            "railwright_certs_steps", "Steps of rotations done.", ["step"], registry=self.registry
        )
        self.failures = prometheus_client.Counter(
            "railwright_certs_failures", "Looks and steps that failed.", registry=self.registry
        )
        prometheus_client.ProcessCollector(registry=self.registry)

    def show(self, looked: installation.Look, now: dt.datetime) -> None:
        """Show what was found."""
        for name, pair in looked.pairs.items():
            try:
                ends = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc
            except ValueError:
                continue  # the next step replaces it
            self._expiry.labels(name).set(ends.timestamp())
            self._left.labels(name).set((ends - now).total_seconds())
        self._authorities.set(len(looked.seen.keyring.trusted))

    def stand_by(self) -> None:
        """Another replica leads: it shows the certificates."""
        self._expiry.clear()
        self._left.clear()
        self._authorities.set(0)

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return exposition.generate_latest(self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(f"railwright_certs_{name}", text, labels, registry=self.registry)
