"""Runs `railwright certs rotate`: once, or with --watch until stopped.

`certs.rotation` decides which step is due, and this module makes it. With --watch it also waits between checks, and
serves probes and metrics. The chart runs one replica. While a new pod replaces the old one, both may write. The API
server accepts the writes of only one, because each write has the resourceVersion that was read.
"""

import argparse
import asyncio
import collections
import contextlib
import datetime as dt
import functools
import logging
import sys
import time

import prometheus_client
from cryptography import x509
from prometheus_client import exposition, registry

from certs import installation, inventory, pki, rotation
from railwright.cli import cluster_access, formats, output
from railwright.cluster import client as clients
from railwright.cluster import errors, events, installed_names
from railwright.serving import logs, ports, probes, server, settings

_POLL_SECONDS = 1.0  # between two checks during a wait of minutes
_MAX_CONFLICTS = 10  # writes by others that are tolerated


def rotate_certificates(arguments: argparse.Namespace) -> int:
    """Rotate once, or with --watch until stopped. Return the exit code. Raise UnreadableError and ClusterError."""
    arguments.namespace = arguments.namespace or installed_names.NAMESPACE
    try:
        for host in inventory.list_hosts("webhook", arguments.namespace, arguments.host):
            pki.build_general_name(host)
    except ValueError as error:
        raise output.UnreadableError(f"certs: {error}") from None
    if not arguments.watch:
        return cluster_access.run_with_client(arguments, functools.partial(rotate_once, arguments))
    logs.configure_logging()

    async def run_watcher(client: clients.Client) -> int:
        return await Watcher(arguments, client, _build_rotator(arguments, client)).run(arguments.ops_listen)

    return cluster_access.run_with_client(arguments, run_watcher)


def _build_rotator(arguments: argparse.Namespace, client: clients.Client) -> installation.Rotator:
    return installation.Rotator(client, arguments.namespace, arguments.host, arguments.overlap)


# --- one run ------------------------------------------------------------------------------------------------


async def rotate_once(arguments: argparse.Namespace, client: clients.Client) -> int:
    """Make the steps of the rotation that are due, and print when the next one is due.

    During a change of the CA, wait for a step that becomes due within minutes.
    Return 1 if a webhook configuration is missing, otherwise 0.
    """
    active_rotator = _build_rotator(arguments, client)
    steps: list[rotation.Step] = []
    renew_ca, conflicts = arguments.renew_ca, 0
    while True:
        try:
            result = await active_rotator.make_step(renew_ca=renew_ca)
        except errors.ApiError as error:
            conflicts += 1
            if error.status not in installation.CONFLICTS or conflicts == _MAX_CONFLICTS:
                raise
            continue
        if isinstance(result, rotation.Step):
            steps.append(result)
            renew_ca = renew_ca and result.action is not rotation.Action.PREPARE
            if not formats.is_document(arguments.output):
                output.print_change(f"{result.action}: {result.reason}")
        elif result.soon:
            with output.show_progress(f"waiting until {result.until:%H:%M:%S} UTC: {result.reason}"):
                await asyncio.sleep(_POLL_SECONDS)
        else:
            return _report_rotation(arguments, steps, result, active_rotator.state)


_RENEW_SCHEDULERS = (
    "schedulers that verify the extender (kube-scheduler, Volcano) need the new CA bundle, and a restart: "
    r"kubectl -n {} get secret {} -o jsonpath='{{.data.ca\.crt}}' | base64 -d"
)


def _report_rotation(
    arguments: argparse.Namespace,
    steps: list[rotation.Step],
    wait: rotation.Wait,
    state: installation.InstalledCertificates | None,
) -> int:
    configurations = state.configurations if state else {}
    missing = [kind for kind, document in configurations.items() if document is None]
    if formats.is_document(arguments.output):
        rows = [{"step": step.action.value, "reason": step.reason, "certificates": step.names} for step in steps]
        next_step = {"at": wait.until.isoformat(), "reason": wait.reason}
        document = {"namespace": arguments.namespace, "steps": rows, "next": next_step, "missing": missing}
        formats.print_document(document, arguments.output)
    else:
        print(f"next: {wait.until:%Y-%m-%d %H:%M} UTC, {wait.reason}")
        # an earlier run or the rotator may have prepared the CA that this run activates
        is_new_ca = any(step.action in (rotation.Action.PREPARE, rotation.Action.ACTIVATE) for step in steps)
        if is_new_ca and state is not None and "extender" in state.secrets:
            print(_RENEW_SCHEDULERS.format(arguments.namespace, inventory.SECRETS["extender"]))
    for kind in missing:  # nothing calls the webhook then
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run the command again",
            file=sys.stderr,
        )
    return output.FINDINGS if missing else output.OK


# --- with --watch -------------------------------------------------------------------------------------------

_LOG = logging.getLogger("railwright.certs")
_REPEAT_PAUSE = 10.0  # seconds after a step that is made again and again
_MAX_SILENCE = 60.0  # seconds without a successful check after which the rotator is not ready
_REPEAT_SECONDS = 600.0  # without a step, after which none counts as a repetition
# after which another writer overwrites a caBundle again and again: a person may apply a manifest twice, and a rotation
# of minutes publishes two bundles
_MIN_REPEATS = 2


class Watcher:
    """The rotator's process: checks the certificates repeatedly, and serves probes and metrics."""

    def __init__(
        self, arguments: argparse.Namespace, client: clients.Client, active_rotator: installation.Rotator
    ) -> None:
        self._arguments, self._client, self._rotator = arguments, client, active_rotator
        self._metrics = registry.CollectorRegistry()
        text = "Seconds until a stored certificate expires, by this process's clock."
        self._left = prometheus_client.Gauge(
            "railwright_certs_seconds_left", text, ["certificate"], registry=self._metrics
        )
        text = "Number of CAs in the bundle; 2 during a change of the CA."
        self._cas = prometheus_client.Gauge("railwright_certs_trusted_cas", text, registry=self._metrics)
        prometheus_client.ProcessCollector(registry=self._metrics)
        self._events = events.Events(client, installed_names.CERTS, now=lambda: dt.datetime.now(dt.UTC))
        self._made = collections.Counter[rotation.Step]()
        self._last_step = 0.0
        self._last_success, self._last_error = time.monotonic(), ""
        self._checks = probes.Probes()
        self._checks.add_check("rotation", self._find_rotation_problem)

    async def run(self, listen: settings.Address) -> int:
        """Rotate and answer probes until SIGTERM or SIGINT, or until a task fails. Return the exit code."""
        app = self._checks.build_application(lambda: exposition.generate_latest(self._metrics))
        try:
            await ports.serve_ports(
                [ports.Port("ops ", listen, app)], (self._rotate, self._events.run), server.print_addresses
            )
        except ExceptionGroup as failed:
            _LOG.critical("a task failed, so this process ends", exc_info=failed)
            return output.FINDINGS
        return output.OK

    async def _rotate(self) -> None:
        """Check the certificates at the interval of --every; at once after a step, after 10 s if the step repeats."""
        while True:
            pause = self._arguments.every.total_seconds()
            try:
                result = await self._rotator.make_step()
            except errors.ClusterError as error:
                self._record_failure(error)
            else:
                self._record_success(result)
                if isinstance(result, rotation.Step):
                    is_repeated = self.count_repeats(result, time.monotonic()) >= _MIN_REPEATS
                    pause = _REPEAT_PAUSE if is_repeated else 0.0
                    if is_repeated and result.action is rotation.Action.PUBLISH:
                        self._report_overwritten_bundles()
            await asyncio.sleep(pause)

    def count_repeats(self, step: rotation.Step, now: float) -> int:
        """Return how often a step was made before. Ten minutes without any step reset the count.

        A step repeats if another client undoes it, or if it has no effect.
        """
        if now - self._last_step > _REPEAT_SECONDS:
            self._made.clear()
        self._last_step = now
        self._made[step] += 1
        return self._made[step] - 1

    def _report_overwritten_bundles(self) -> None:
        """Write an Event about each webhook configuration whose caBundle another client keeps overwriting."""
        state = self._rotator.state
        if state is None:
            return
        for involved, hooks, writers in state.list_overwritten_bundles():
            message = (
                f"{', '.join(writers) or 'another writer'} overwrites the caBundle of {', '.join(hooks)} whenever "
                f"{installed_names.CERTS} has written it, and the API server rejects opted-in pods meanwhile; let only "
                "one of them write it: remove the annotation cert-manager.io/inject-ca-from of the configuration, or "
                "have the GitOps tool ignore caBundle"
            )
            self._events.post(involved, warning=True, reason=installed_names.OVERWRITTEN, message=message)

    def _record_success(self, result: rotation.Step | rotation.Wait) -> None:
        self._last_success, self._last_error = time.monotonic(), ""
        if self._rotator.state is not None:
            self._set_gauges(self._rotator.state)
        if isinstance(result, rotation.Step):
            fields = {"step": result.action.value, "reason": result.reason, "certificates": result.names}
            _LOG.info("step done", extra={"fields": fields})

    def _set_gauges(self, state: installation.InstalledCertificates) -> None:
        self._left.clear()  # of an extender that has been removed
        for name, secret in state.secrets.items():
            pair = secret.read_pair() or pki.KeyPair(b"", b"")
            with contextlib.suppress(ValueError):  # none, or an unreadable one, which the next step replaces
                expiry = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc
                self._left.labels(name).set((expiry - dt.datetime.now(dt.UTC)).total_seconds())
        self._cas.set(len(state.keyring.trusted))

    def _record_failure(self, error: errors.ClusterError) -> None:
        if error.status in installation.CONFLICTS:
            _LOG.info(
                "a write was refused, because another client had changed the object; checking again",
                extra={"fields": {"error": str(error)}},
            )
            return
        if str(error) != self._last_error:
            self._last_error = str(error)
            _LOG.warning("check of the certificates failed; trying again", extra={"fields": {"error": error.sentence}})

    def _find_rotation_problem(self) -> str | None:
        silence = time.monotonic() - self._last_success
        if silence < _MAX_SILENCE:
            return None
        return f"no successful check of the certificates for {silence:.0f} s: {self._last_error or 'see the log'}"
