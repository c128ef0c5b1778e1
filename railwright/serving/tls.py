"""Loads and checks the serving certificate, and reloads it when its files change.

Each load makes a new TLS context for the next connections. Loading into the context in use would break it if
certificate and key do not match, and could not remove an old CA of clients.
"""

import asyncio
import datetime as dt
import logging
import pathlib
import ssl
from collections.abc import Callable

from cryptography import x509

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.5  # docs/interface.md 6: a change of the files takes effect within a second
EXPIRY_MARGIN = dt.timedelta(seconds=60)  # not ready a minute before expiry, so that no handshake fails


class CertificateError(ValueError):
    """Raised if the files contain no usable serving certificate. The message names the files and the cause."""


class Certificate:
    """The serving certificate in use. A valid one stays in use until another valid one replaces it."""

    context: ssl.SSLContext  # for new connections
    not_after: dt.datetime

    def __init__(
        self,
        certificate: pathlib.Path,
        key: pathlib.Path,
        client_ca: pathlib.Path | None = None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """Load the chain, its key and the CA of clients. Raises CertificateError."""
        self._certificate, self._key, self._client_ca, self._now = certificate, key, client_ca, now
        self._last_error = ""
        self._versions: object = None  # of the files that were loaded
        self._load()

    def find_expiry_problem(self) -> str | None:
        """Return why the server is not ready if its certificate expires within EXPIRY_MARGIN, otherwise None."""
        if self.not_after - self._now() > EXPIRY_MARGIN:
            return None
        return f"the certificate of {self._certificate} expires at {self.not_after.isoformat()}: renew it"

    def reload(self) -> bool:
        """Load changed files, and return True if they are in use now. Invalid files are logged once."""
        before, self._last_error = self._last_error, ""
        try:
            has_changed = self._load()
        except CertificateError as error:
            self._last_error = str(error)
            if self._last_error != before:
                fields = {"reason": self._last_error}
                _LOG.warning("new serving certificate rejected; the old one stays in use", extra={"fields": fields})
            return False
        if has_changed:
            _LOG.info("new serving certificate in use", extra={"fields": {"not_after": self.not_after.isoformat()}})
        return has_changed

    async def watch(self) -> None:
        """Reload changed files until cancelled. Polls, because file notifications miss the swap of a Secret's link."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await asyncio.to_thread(self.reload)

    def _load(self) -> bool:
        """Load the files if they have changed, and return whether they have. Raises CertificateError."""
        files = [path for path in (self._certificate, self._key, self._client_ca) if path is not None]
        try:
            # changes with each write of a file, and with each swap of kubelet's link to all files
            versions = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in files)]
            if versions == self._versions:
                return False
            certificate = x509.load_pem_x509_certificates(self._certificate.read_bytes())[0]
            context = self._build_context()
        except (OSError, ValueError, x509.InvalidVersion) as error:
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                raise CertificateError(f"{self._key} does not match the certificate {self._certificate}") from None
            needed = "they must exist, be PEM, and have a key without a passphrase"
            raise CertificateError(f"{', '.join(map(str, files))}: {needed}: {error}") from None
        begins, ends, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, self._now()
        if not begins <= now < ends:
            span = f"is valid from {begins.isoformat()} to {ends.isoformat()}, but not now by this machine's clock"
            raise CertificateError(f"{self._certificate} {span}: renew it, or correct the clock")
        self.context, self.not_after, self._versions = context, ends, versions
        return True

    def _build_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET  # a resumed session would skip the check of the client certificate
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._certificate, self._key, password="")  # otherwise OpenSSL asks on the terminal
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # the application says which paths need one
        return context
