"""The serving certificate: loaded, checked whole, and replaced while connections live on.

A fresh context is built and proven before it is used; a torn pair (new certificate, old key) never is, and the old one
stays. The front context hands each handshake over to the newest good one, so that nothing is changed under a live
context (loading a mismatched pair into one breaks all its later handshakes; measured).
"""

import asyncio
import datetime as dt
import logging
import pathlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import serialization

POLL_SECONDS = 5.0  # a Secret mount is swapped by a symlink, which change notifications on the file miss
_log = logging.getLogger("railwright.tls")


class CertificateError(ValueError):
    """The files do not make a certificate that can be served; the message names them and what is wrong."""


class Source:
    """The certificate files of a server and the newest good context made of them."""

    def __init__(self, certificate: pathlib.Path, key: pathlib.Path, client_ca: pathlib.Path | None) -> None:
        """Loads the pair. Raises CertificateError."""
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._content: tuple[bytes, ...] = ()
        self._failed: tuple[bytes, ...] = ()
        self._current, self.expires = self._load()
        self.front = _context()
        self.front.load_cert_chain(certificate, key)
        if client_ca is not None:
            self.front.load_verify_locations(cafile=client_ca)
            self.front.verify_mode = ssl.CERT_REQUIRED
        self.front.sni_callback = self._choose

    def problem(self, now: dt.datetime) -> str:
        """For readiness: "" while the certificate is valid."""
        return "" if now < self.expires else f"{self._certificate} has ended at {self.expires.isoformat()}"

    async def run(self) -> None:
        """Looks at the files for ever and takes over what is good."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await asyncio.to_thread(self.reload)

    def reload(self) -> bool:
        """Takes over changed files; True if it did. What is wrong is logged once, and the old certificate stays."""
        content: tuple[bytes, ...] = ()
        try:
            content = self._read()
            if content in (self._content, self._failed):
                return False
            self._current, self.expires = self._load()
        except (CertificateError, OSError) as error:
            if content != self._failed or not content:
                fields = {"error": str(error), "certificate": str(self._certificate)}
                _log.warning("certificate not taken over", extra={"fields": fields})
            self._failed = content
            return False
        _log.info("certificate taken over", extra={"fields": {"expires": self.expires.isoformat()}})
        return True

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> tuple[ssl.SSLContext, dt.datetime]:
        content = self._read()
        chain, key = content[0], content[1]
        try:
            leaf = x509.load_pem_x509_certificate(chain)
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise CertificateError(
                f"{self._certificate}, {self._key}: not a PEM certificate and key: {error}"
            ) from error
        public = private.public_key()
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        if leaf.public_key().public_bytes(*form) != public.public_bytes(*form):
            raise CertificateError(f"{self._certificate} is not the certificate of the key {self._key}")
        context = _context()
        try:
            context.load_cert_chain(self._certificate, self._key)
            if self._client_ca is not None:
                context.load_verify_locations(cadata=content[2].decode("ascii"))
                context.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise CertificateError(f"{self._certificate}: {error}") from error
        if self._read() != content:
            raise CertificateError(f"{self._certificate} changed while it was read; read again in {POLL_SECONDS:.0f} s")
        self._content = content
        return context, leaf.not_valid_after_utc

    def _read(self) -> tuple[bytes, ...]:
        paths = [self._certificate, self._key, *([self._client_ca] if self._client_ca else [])]
        return tuple(path.read_bytes() for path in paths)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET  # a resumed session would skip the check of the caller's certificate
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context
