"""The serving certificate: loaded, checked whole, and replaced while connections live on.

A pair is proven in a fresh context before it is used, because `load_cert_chain` with a torn pair leaves a live context
unable to do any handshake (measured). A front context, which has no key of its own, hands each handshake over to the
newest good one through its SNI callback, which runs without SNI too. Of a private key nothing is kept outside OpenSSL,
and only in the context in use: OpenSSL wipes it there once it was replaced.
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

_LOG = logging.getLogger(__name__)
POLL_SECONDS = 5.0  # cert-manager and controller-runtime take 10; the kubelet itself takes up to a minute
EXPIRY_MARGIN = dt.timedelta(seconds=60)  # not ready a minute before the end, so that no handshake meets it
_LARGEST = 1 << 20  # bytes of a file; a chain is some KiB, and a hostile megabyte costs a second to parse


class CertificateError(ValueError):
    """The files do not make a certificate that can be served; the message names them and what is wrong."""


class Files(msgspec.Struct, frozen=True):
    """Where the certificate chain, its key and the authority of the callers are."""

    certificate: pathlib.Path
    key: pathlib.Path
    client_ca: pathlib.Path | None = None


class _Pems(msgspec.Struct, frozen=True):
    certificate: bytes
    key_digest: bytes
    client_ca: bytes | None


class _Loaded(msgspec.Struct, frozen=True):
    pems: _Pems
    context: ssl.SSLContext
    not_before: dt.datetime
    not_after: dt.datetime


def utc_now() -> dt.datetime:
    """The wall clock, which is what a certificate's dates mean."""
    return dt.datetime.now(dt.UTC)


class Source:
    """The certificate in use. Once there is a good one, it stays until there is a better one."""

    def __init__(self, files: Files, *, now: Callable[[], dt.datetime] = utc_now) -> None:
        """Loads the files. Raises CertificateError."""
        self._files, self._now = files, now
        self._complaint = ""
        self._current = _load(files, now())
        self.front = _front(self._current)  # of its own: a callback on a context would also be the swapped one's
        self.front.sni_callback = self._choose

    @property
    def not_after(self) -> dt.datetime:
        """When the certificate in use ends."""
        return self._current.not_after

    @property
    def left(self) -> dt.timedelta:
        """How long the certificate in use is still good; negative once it has ended."""
        return self.not_after - self._now()

    @property
    def lifetime(self) -> dt.timedelta:
        """How long the certificate in use was made for."""
        return self.not_after - self._current.not_before

    def check(self) -> str | None:
        """A readiness check: None while the certificate in use is good for a while yet."""
        if self._now() + EXPIRY_MARGIN < self.not_after:
            return None
        return f"the certificate of {self._files.certificate} ends at {self.not_after.isoformat()}: renew it"

    def reload(self) -> bool:
        """Take over the files if they have changed and are good; True if so. A bad pair is logged once."""
        try:
            if _read(self._files) == self._current.pems:
                self._complaint = ""
                return False
            self._current = _load(self._files, self._now())
        except CertificateError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _LOG.warning("certificate not taken over, the old one stays", extra={"fields": {"reason": str(error)}})
            return False
        self._complaint = ""
        _LOG.info("certificate taken over", extra={"fields": {"not_after": self.not_after.isoformat()}})
        return True

    async def watch(self, seconds: float = POLL_SECONDS) -> None:
        """Look at the files for ever. Polling, because notifications on a file miss the swap of a Secret's link."""
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.reload)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        connection.context = self._current.context


def admitting(names: Collection[str]) -> Callable[[asyncio.BaseTransport], bool]:
    """A judge of connections: true for callers whose certificate bears one of `names`, or for all where none is given.

    The handshake has proven the certificate by then; no ticket lets a caller skip it.
    """

    def admitted(transport: asyncio.BaseTransport) -> bool:
        given = _caller(transport.get_extra_info("peercert"))
        if given & allowed:
            return True
        _LOG.warning("caller refused", extra={"fields": {"names": sorted(given), "wanted": sorted(allowed)}})
        return False

    allowed = frozenset(names)
    return admitted if allowed else lambda _transport: True


def _caller(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The common names and subject alternative names of a certificate in the form of `ssl`."""
    found = certificate or {}
    common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return frozenset([*common, *(value for _, value in found.get("subjectAltName", ()))])


def _load(files: Files, now: dt.datetime) -> _Loaded:
    pems = _read(files)
    not_before, not_after = _checked(files, pems, now)
    context = _context(files, pems)
    if _read(files) != pems:  # OpenSSL reads the files itself, so they must still be what was checked
        raise CertificateError(f"{files.certificate} and {files.key} changed while they were read")
    return _Loaded(pems, context, not_before, not_after)


def _read(files: Files) -> _Pems:
    paths = _snapshot(files)
    with _secret(paths.key) as key:
        digest = hashlib.sha256(key).digest()
    return _Pems(_bytes(paths.certificate), digest, _bytes(paths.client_ca) if paths.client_ca else None)


def _snapshot(files: Files) -> Files:
    """The files through one resolution of each directory's `..data` link, which the kubelet swaps as a whole."""
    resolved: dict[pathlib.Path, pathlib.Path] = {}

    def through(path: pathlib.Path) -> pathlib.Path:
        link = path.parent / "..data"
        if path.parent not in resolved and link.is_symlink():
            resolved[path.parent] = link.resolve()
        found = resolved.get(path.parent, path.parent) / path.name
        return found if found.exists() else path

    return Files(through(files.certificate), through(files.key), through(files.client_ca) if files.client_ca else None)


def _bytes(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _secret(path: pathlib.Path) -> Iterator[bytearray]:
    """The bytes of a file, wiped afterwards."""
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


def _checked(files: Files, pems: _Pems, now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """When the leaf begins and ends. Raises CertificateError unless it is valid now."""
    try:
        leaf = x509.load_pem_x509_certificates(pems.certificate)[0]
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{files.certificate}: not a PEM certificate: {error}") from None
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        span = f"{leaf.not_valid_before_utc.isoformat()} to {leaf.not_valid_after_utc.isoformat()}"
        raise CertificateError(f"{files.certificate} is valid from {span}, and it is {now.isoformat()}")
    return leaf.not_valid_before_utc, leaf.not_valid_after_utc


def _front(loaded: _Loaded) -> ssl.SSLContext:
    """A context as the loaded one, without its certificate and key."""
    context = _empty()
    context.verify_mode = loaded.context.verify_mode  # it counts from before the hand-over; the authorities do not
    return context


def _encrypted() -> str:
    raise ValueError("the key is encrypted")


def _empty() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET  # a resumed session would skip the check of the caller's certificate
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context


def _context(files: Files, pems: _Pems) -> ssl.SSLContext:
    context = _empty()
    paths = _snapshot(files)
    try:
        context.load_cert_chain(paths.certificate, paths.key, password=_encrypted)
        if pems.client_ca is not None:
            context.load_verify_locations(cadata=pems.client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"{files.key} is not the key of {files.certificate}") from None
        raise CertificateError(
            f"{files.certificate}, {files.key}, {files.client_ca or 'no client CA'}: "
            f"not a PEM certificate and an unencrypted key: {error}"
        ) from None
    return context
