"""The serving certificate: loaded, checked, and replaced without closing connections.

A new pair is loaded into a fresh context before use, because `load_cert_chain` with a mismatched pair breaks a live
context for all handshakes (measured). A front context without a key passes each handshake to the newest valid context
in its SNI callback, which also runs without SNI. Private keys exist only inside OpenSSL, in the context in use;
OpenSSL wipes a key when its context is freed.
"""

import asyncio
import contextlib
import datetime as dt
import hashlib
import logging
import pathlib
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
from cryptography import x509

from railwright.serving import limits

_LOG = logging.getLogger(__name__)
# cert-manager and controller-runtime poll every 10 s; kubelet takes up to a minute to update a Secret
POLL_SECONDS = 5.0
EXPIRY_MARGIN = dt.timedelta(seconds=60)  # not ready a minute before expiry, so that no handshake fails
_REJECTIONS_PER_SECOND, _REJECTIONS_BURST = 1, 10  # logged; every pod of the cluster may cause more
_LARGEST = 1 << 20  # bytes of a file; chains have a few KiB, and parsing a hostile megabyte takes a second


class CertificateError(ValueError):
    """The files do not contain a usable serving certificate; the message names the files and the cause."""


class Files(msgspec.Struct, frozen=True):
    """Paths of the certificate chain, its key, and the CA of client certificates.

    If `has_optional_clients`, a client that presents no certificate passes the handshake.
    """

    certificate: pathlib.Path
    key: pathlib.Path
    client_ca: pathlib.Path | None = None
    has_optional_clients: bool = False


class _Pems(msgspec.Struct, frozen=True):
    certificate: bytes
    key_digest: bytes
    client_ca: bytes | None


class _Loaded(msgspec.Struct, frozen=True):
    pems: _Pems
    context: ssl.SSLContext
    not_before: dt.datetime
    not_after: dt.datetime


def get_utc_now() -> dt.datetime:
    """Return the wall-clock time, which certificate dates refer to."""
    return dt.datetime.now(dt.UTC)


class Source:
    """The serving certificate in use. A valid one stays in use until another valid one replaces it."""

    def __init__(self, files: Files, *, now: Callable[[], dt.datetime] = get_utc_now) -> None:
        """Load the files. Raises CertificateError."""
        self._files, self._now = files, now
        self._last_error = ""
        self._current = _load(files, now())
        # separate: a callback set on a context would also be that of the context that replaces it
        self.front = _build_front_context(self._current)
        self.front.sni_callback = self._choose

    @property
    def not_after(self) -> dt.datetime:
        """Time at which the certificate in use expires."""
        return self._current.not_after

    @property
    def left(self) -> dt.timedelta:
        """Time until the certificate in use expires; negative afterwards."""
        return self.not_after - self._now()

    @property
    def lifetime(self) -> dt.timedelta:
        """Validity period of the certificate in use."""
        return self.not_after - self._current.not_before

    def check(self) -> str | None:
        """Return why the server is not ready: its certificate expires within EXPIRY_MARGIN. None otherwise."""
        if self._now() + EXPIRY_MARGIN < self.not_after:
            return None
        return f"the certificate of {self._files.certificate} expires at {self.not_after.isoformat()}: renew it"

    def reload(self) -> bool:
        """Load the files if they have changed and are valid; return True if so. An invalid pair is logged once."""
        try:
            if _read(self._files) == self._current.pems:
                self._last_error = ""
                return False
            self._current = _load(self._files, self._now())
        except CertificateError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _LOG.warning(
                    "new serving certificate rejected; the old one stays in use",
                    extra={"fields": {"reason": str(error)}},
                )
            return False
        self._last_error = ""
        _LOG.info("new serving certificate in use", extra={"fields": {"not_after": self.not_after.isoformat()}})
        return True

    async def watch(self, seconds: float = POLL_SECONDS) -> None:
        """Poll the files until cancelled. File notifications miss the swap of a Secret's symbolic link."""
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.reload)

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _build_front_context: ssl.SSLContext
    ) -> None:
        connection.context = self._current.context


def build_client_check(names: Collection[str]) -> Callable[[asyncio.BaseTransport | None], bool]:
    """Return a predicate of connections: True if the client presented a certificate with one of `names`, or any if
    `names` is empty.

    The handshake has verified the certificate by then; session tickets are disabled, so no client can skip it.
    """

    def is_certified(transport: asyncio.BaseTransport | None) -> bool:
        certificate = transport.get_extra_info("peercert") if transport else None
        given = _read_names(certificate)
        if given & allowed or (certificate and not allowed):
            return True
        if log_budget.take():
            problem = "client certificate rejected" if certificate else "client without a certificate rejected"
            _LOG.warning(problem, extra={"fields": {"names": sorted(given), "wanted": sorted(allowed)}})
        return False

    allowed, log_budget = frozenset(names), limits.TokenBucket(_REJECTIONS_PER_SECOND, _REJECTIONS_BURST)
    return is_certified


def _read_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the common names and subject alternative names of a certificate in the format of `ssl`."""
    fields = certificate or {}
    common = [value for part in fields.get("subject", ()) for key, value in part if key == "commonName"]
    return frozenset([*common, *(value for _, value in fields.get("subjectAltName", ()))])


def _load(files: Files, now: dt.datetime) -> _Loaded:
    pems = _read(files)
    not_before, not_after = _check_validity(files, pems, now)
    context = _load_context(files, pems)
    if _read(files) != pems:  # OpenSSL reads the files itself, so they must be unchanged
        raise CertificateError(f"{files.certificate} and {files.key} changed while they were read")
    return _Loaded(pems, context, not_before, not_after)


def _read(files: Files) -> _Pems:
    paths = _resolve_links(files)
    with _read_secret(paths.key) as key:
        digest = hashlib.sha256(key).digest()
    return _Pems(_read_bytes(paths.certificate), digest, _read_bytes(paths.client_ca) if paths.client_ca else None)


def _resolve_links(files: Files) -> Files:
    """Resolve each directory's `..data` link once, because kubelet replaces all files of a Secret through that link."""
    resolved: dict[pathlib.Path, pathlib.Path] = {}

    def through(path: pathlib.Path) -> pathlib.Path:
        link = path.parent / "..data"
        if path.parent not in resolved and link.is_symlink():
            resolved[path.parent] = link.resolve()
        candidate = resolved.get(path.parent, path.parent) / path.name
        return candidate if candidate.exists() else path

    client_ca = through(files.client_ca) if files.client_ca else None
    return Files(through(files.certificate), through(files.key), client_ca)


def _read_bytes(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _read_secret(path: pathlib.Path) -> Iterator[bytearray]:
    """Yield the content of a file, and wipe it afterwards."""
    read = bytearray(_LARGEST)
    try:
        try:
            with path.open("rb", buffering=0) as file:  # a buffer would keep a copy
                size = file.readinto(read) or 0
        except OSError as error:
            raise CertificateError(f"{path}: {error.strerror}") from None
        del read[size:]
        yield read
    finally:
        read[:] = bytes(len(read))


def _check_validity(files: Files, pems: _Pems, now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """Return the validity dates of the serving certificate. Raises CertificateError unless it is valid now."""
    try:
        certificate = x509.load_pem_x509_certificates(pems.certificate)[0]
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{files.certificate}: not a PEM certificate: {error}") from None
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        span = f"{certificate.not_valid_before_utc.isoformat()} to {certificate.not_valid_after_utc.isoformat()}"
        raise CertificateError(f"{files.certificate} is valid from {span}, but it is {now.isoformat()} now: renew it")
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _build_front_context(loaded: _Loaded) -> ssl.SSLContext:
    """Return a context like that of `loaded`, without its certificate and key."""
    context = _build_context()
    context.verify_mode = loaded.context.verify_mode  # verify_mode counts from before the hand-over; the CAs do not
    return context


def _reject_encrypted_key() -> str:
    raise ValueError("the key is encrypted; provide it without a passphrase")


def _build_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET  # a resumed session would skip the check of the client certificate
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_context(files: Files, pems: _Pems) -> ssl.SSLContext:
    context = _build_context()
    paths = _resolve_links(files)
    try:
        context.load_cert_chain(paths.certificate, paths.key, password=_reject_encrypted_key)
        if pems.client_ca is not None:
            context.load_verify_locations(cadata=pems.client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_OPTIONAL if files.has_optional_clients else ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{files.key} does not match the certificate {files.certificate}") from None
        raise CertificateError(
            f"{files.certificate}, {files.key}, {files.client_ca or 'no client CA'}: "
            f"not a PEM certificate and an unencrypted key: {error}"
        ) from None
    return context
