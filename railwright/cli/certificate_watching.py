"""Runs `railwright certs rotate --watch`: repeats the rotation until stopped, in one of several replicas at a time.

Manages the election, the pauses between checks, probes and metrics. `certs.rotation` decides which step is due.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import logging
import signal
import socket
import sys

import prometheus_client
from cryptography import x509
from prometheus_client import exposition, registry

from certs import installation, rotation
from railwright.cli import certificates, cluster_access, options, output
from railwright.cluster import client as clients
from railwright.cluster import errors, lease
from railwright.serving import connections, dispatch, limits, logs, probes, routes, settings

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

    def _build_gauge(self, name: str, text: str, *labels: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(f"railwright_certs_{name}", text, labels, registry=self.registry)


_LOG = logging.getLogger("railwright.certs")
_MAX_PAUSE = 30.0  # seconds between two checks, whatever fails
_MAX_DOUBLINGS = 16  # more exceeds _MAX_PAUSE anyway, and overflows after hours of failures
_MAX_SILENCE = 60.0  # seconds without a successful check after which a leader is not ready
_UNAUTHORIZED = 401


def watch(arguments: argparse.Namespace) -> int:
    """Rotate until stopped. Returns and raises as `certificates.issue`."""
    return certificates.run_action(_watch, arguments)


async def _watch(arguments: argparse.Namespace) -> int:
    """Rotate until SIGTERM or SIGINT, then release the Lease. Raises UnreadableError, ValueError and ClusterError."""
    try:
        listen = settings.parse_address(arguments.ops_listen)
    except ValueError as error:
        raise output.UnreadableError(f"--ops-listen {error}") from None
    logs.configure()
    async with cluster_access.connect(options.get_cluster(arguments)) as client:
        watcher = Watcher(arguments, client, certificates.build_rotator(arguments, client))
        return await watcher.run(listen)


def compute_pause(every: float, failures: int) -> float:
    """Return the seconds until the next check, after this number of failures in a row."""
    return min(every * 2.0 ** min(failures, _MAX_DOUBLINGS), _MAX_PAUSE)


class Watcher:
    """One replica: rotates while it holds the Lease."""

    def __init__(
        self, arguments: argparse.Namespace, client: clients.Client, active_rotator: installation.Rotator
    ) -> None:
        self._arguments, self._client, self._rotator = arguments, client, active_rotator
        self._gauges = Gauges()
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._last_success, self._last_error = lease.read_uptime(), ""
        self._election = lease.Election(
            client,
            arguments.namespace,
            arguments.lease,
            lease.create_identity(arguments.identity or socket.gethostname()),
            changed=self._set_leading,
        )
        self._checks = probes.Probes()
        self._checks.add("lease", self._find_lease_problem)
        self._checks.add("rotation", self._find_rotation_problem)

    async def run(self, listen: settings.Address) -> int:
        """Take part in the election, rotate and answer probes until SIGTERM or SIGINT. Return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        table = (
            routes.Route("/livez", self._checks.handle_live, "GET"),
            routes.Route("/readyz", self._checks.handle_ready, "GET"),
            routes.Route("/metrics", self._serve_metrics, "GET"),
        )
        async with connections.open_port(
            listen, dispatch.Dispatcher(table, limits.Limits(max_body=0), None)
        ) as address:
            sys.stderr.write(f"ops listening on {address}\n")
            sys.stderr.flush()
            tasks = [asyncio.create_task(task) for task in (self._election.run(), self._rotate(), self._stop.wait())]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.critical("a task failed, so this process ends", exc_info=error)
                return output.FINDINGS
        return output.OK

    async def _rotate(self) -> None:
        """Check every `every` seconds while leading: at once after a step, with growing pauses after failures."""
        every, failures = self._arguments.every.total_seconds(), 0
        while True:
            if not self._election.leading:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                result = await self._rotator.step()
            except errors.ClusterError as error:
                failures += 1
                await self._record_failure(error)
            else:
                failures = 0
                self._record_success(result)
                if isinstance(result, rotation.Step):
                    continue
            await asyncio.sleep(compute_pause(every, failures))

    def _record_success(self, result: rotation.Step | rotation.Wait) -> None:
        self._last_success, self._last_error = lease.read_uptime(), ""
        now = dt.datetime.now(dt.UTC)
        if self._rotator.state is not None and self._election.leading:
            self._gauges.report(self._rotator.state, now)
        if isinstance(result, rotation.Wait):
            self._gauges.last_success.set(now.timestamp())
            return
        self._gauges.steps.labels(result.action.value).inc()
        fields = {"step": result.action.value, "reason": result.reason, "certificates": result.names}
        _LOG.info("step done", extra={"fields": fields})

    async def _record_failure(self, error: errors.ClusterError) -> None:
        if error.status in installation.CONFLICTS:
            _LOG.info("another writer was faster, checking again", extra={"fields": {"error": str(error)}})
            return
        self._gauges.failures.inc()
        if str(error) != self._last_error:
            self._last_error = str(error)
            _LOG.warning("check of the certificates failed; trying again", extra={"fields": {"error": error.sentence}})
        if error.status == _UNAUTHORIZED:
            with contextlib.suppress(errors.ConfigurationError):  # reported by the next check
                await self._client.renew()

    def _set_leading(self, leading: bool) -> None:  # noqa: FBT001 - the signature of the election's callback
        self._gauges.leading.set(leading)
        self._last_success = lease.read_uptime()
        if leading:
            self._wake.set()
        else:
            self._rotator.forget()
            self._gauges.clear()

    def _find_lease_problem(self) -> str | None:
        return (
            None
            if self._election.leading or self._election.holder
            else "no replica holds the Lease, or it has not been read yet"
        )

    def _find_rotation_problem(self) -> str | None:
        silence = lease.read_uptime() - self._last_success
        if not self._election.leading or silence < _MAX_SILENCE:
            return None
        return f"no successful check of the certificates for {silence:.0f} s: {self._last_error or 'see the log'}"

    def _serve_metrics(self, _call: routes.Call) -> routes.Reply:
        return routes.Reply(exposition.generate_latest(self._gauges.registry), content_type=CONTENT_TYPE)
