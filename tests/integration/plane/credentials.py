"""Certificates and kubeconfigs of the control plane, issued by our `certs` with one CA."""

import base64
import datetime as dt
import json
import pathlib
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from certs import pki

ISSUER = "https://kubernetes.default.svc"  # of the tokens of service accounts
LOOPBACK = ("127.0.0.1", "localhost")
_LIFETIME = dt.timedelta(days=2)  # longer than any test run


class Credentials:
    """A folder of certificates, all signed by `authority`, the only CA of the plane."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.authority = pki.issue_ca("railwright-tests", now=_now(), lifetime=_LIFETIME)
        folder.mkdir(parents=True, exist_ok=True)
        self._write("ca", self.authority)
        self.ca = folder / "ca.crt"
        self.server("plane", ("kubernetes.default.svc",))
        self.client("admin", "admin", ("system:masters",))
        self._write_service_account_keys()

    def server(self, name: str, hosts: Sequence[str] = ()) -> tuple[str, str]:
        """Issue a server certificate for loopback and `hosts`; returns the paths of certificate and key."""
        return self._issue(name, name, (), (*LOOPBACK, *hosts), {"server", "client"})

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> tuple[str, str]:
        """Issue a client certificate; Kubernetes reads user and groups from it. Returns paths as `server`."""
        return self._issue(name, user, groups, (), {"client"})

    def paths(self, name: str) -> tuple[str, str]:
        """Return the paths of certificate and key issued under `name`."""
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")

    def kubeconfig(self, name: str, server: str, user: str, groups: Sequence[str] = ()) -> pathlib.Path:
        """Write a kubeconfig for `user`, with its own certificate, and return its path."""
        certificate, key = self.client(name, user, groups)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "plane",
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user}}],
            "clusters": [{"name": "plane", "cluster": {"server": server, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"client-certificate": certificate, "client-key": key}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def context(self, *, anonymous: bool = False) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts the CA and, unless anonymous, is the admin."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if not anonymous:
            context.load_cert_chain(*self.paths("admin"))
        return context

    def serving(self, name: str) -> ssl.SSLContext:
        """Return the TLS context of a server with the certificate `name`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.paths(name))
        return context

    def _issue(
        self, name: str, user: str, groups: Sequence[str], hosts: Sequence[str], usages: set[str]
    ) -> tuple[str, str]:
        pair = pki.issue_certificate(
            self.authority,
            common_name=user,
            organizations=groups,
            hosts=hosts,
            usages=usages,
            now=_now(),
            lifetime=_LIFETIME,
        )
        self._write(name, pair)
        return self.paths(name)

    def _write(self, name: str, pair: pki.KeyPair) -> None:
        (self.folder / f"{name}.key").write_bytes(pair.key_pem)
        (self.folder / f"{name}.crt").write_bytes(pair.certificate_pem)

    def _write_service_account_keys(self) -> None:
        pair = pki.issue_ca("service-accounts", now=_now(), lifetime=_LIFETIME)  # only its key is used
        private = serialization.load_pem_private_key(pair.key_pem, password=None)
        public = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "sa.key").write_bytes(pair.key_pem)
        (self.folder / "sa.pub").write_bytes(public)


def sign_token(key: pathlib.Path, claims: Mapping[str, Any]) -> str:
    """Return a service account's token, signed as by the API server (ES256; RFC 7515) with the key in a file."""
    signer = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    head = _encode(json.dumps({"alg": "ES256", "typ": "JWT"}).encode())
    signed = f"{head}.{_encode(json.dumps({'iss': ISSUER, 'aud': [ISSUER], **claims}).encode())}"
    numbers = utils.decode_dss_signature(signer.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_encode(b''.join(number.to_bytes(32) for number in numbers))}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
