"""Address and credentials of the API server, from a kubeconfig or from the service account of this pod.

Knows the ways of client-go to authenticate: bearer token, token file, client certificate, credential plugin (`exec`),
user name and password, and the ID token that kubectl has stored for `auth-provider: oidc`.
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins has the format of
plugins.
"""

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple
from urllib import parse

from railwright.cluster import errors, failures, kubeconfigs

READ_SECONDS = 60.0  # for exec plugins: one that waits for input would block a server forever
POD_FILES = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")  # token and ca.crt
_Result = tuple[int, bytes, bytes]  # exit code, standard output and standard error of a plugin


class Impersonation(NamedTuple):
    """The user and groups to act as, with the right `impersonate`; empty for one's own account."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()  # (key, value); a key may occur several times

    def list_headers(self) -> list[tuple[str, str]]:
        """Return the headers by which the API server impersonates. Those of groups and extras may repeat."""
        single = (("Impersonate-User", self.user), ("Impersonate-Uid", self.uid))
        return [
            *((name, value) for name, value in single if value),
            *(("Impersonate-Group", group) for group in self.groups),
            *((f"Impersonate-Extra-{parse.quote(key, safe='')}", value) for key, value in self.extra),
        ]

    def complete(self, user: Mapping[str, Any]) -> "Impersonation":
        """Return these values, and for the others those of a kubeconfig's user, as kubectl does."""
        extra = tuple(
            (str(key), str(value))
            for key, values in (user.get("as-user-extra") or {}).items()
            for value in values or ()
        )
        return Impersonation(
            self.user or str(user.get("as") or ""),
            self.groups or tuple(map(str, user.get("as-groups") or ())),
            self.uid or str(user.get("as-uid") or ""),
            self.extra or extra,
        )


NOBODY_ELSE = Impersonation()


class Proof(NamedTuple):
    """How a user authenticates; empty for nobody."""

    authorization: str = ""  # header
    token_file: pathlib.Path | None = None  # read for every request, because tokens are rotated
    certificate: bytes = b""  # PEM
    key: bytes = b""  # PEM


class Account:
    """Address and credentials of a kubeconfig's context, or of the service account of this pod (`kubeconfig` None)."""

    proxy: str | None = None  # from the kubeconfig's cluster, never from the environment
    server_name: str | None = None  # set if the certificate has another name than the host

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        host: str,
        proof: Proof,
        impersonation: Impersonation = NOBODY_ELSE,
    ) -> None:
        self._kubeconfig, self._context, self._proof = kubeconfig, context, proof
        self.impersonation = impersonation  # its headers are not among `headers`, because one may repeat
        self.host = host
        self.tls: ssl.SSLContext | bool = True

    @property
    def is_anonymous(self) -> bool:
        """True if the account has no credentials, so that its requests are those of nobody."""
        return not any(self._proof)

    async def headers(self) -> dict[str, str]:
        """Return the authentication headers. Raises ConfigurationError if the token file cannot be read any more."""
        authorization, path = self._proof[:2]
        if path is not None:
            try:
                authorization = f"Bearer {_read_token(path, str(path))}"
            except kubeconfigs.KubeconfigError as error:
                raise _build_error(self._kubeconfig, error) from None
        return {"authorization": authorization} if authorization else {}

    async def renew(self) -> "Account":
        """Return the reloaded account. Raises ConfigurationError."""
        return await read(self._kubeconfig, self._context, self.impersonation)


async def read(
    kubeconfig: str | None, context: str | None = None, impersonation: Impersonation = NOBODY_ELSE
) -> Account:
    """Read the account of a kubeconfig in its current or the given context, or of the pod this runs in.

    Raises ConfigurationError.
    """
    try:
        if kubeconfig is None:
            return _read_pod_account(impersonation)
        selection = kubeconfigs.select(kubeconfig, context)
        proof = Proof()
        if selection.user is not None:
            proof = await _get_proof(selection.user)
            impersonation = impersonation.complete(selection.user.tree)
        tree = selection.cluster.tree
        account = Account(kubeconfig, context, tree["server"].rstrip("/"), proof, impersonation)
        account.tls = _build_tls_context(selection, proof)
        account.proxy = tree.get("proxy-url") or None
        account.server_name = tree.get("tls-server-name") or None
    except kubeconfigs.KubeconfigError as error:
        raise _build_error(kubeconfig, error) from None
    except (OSError, *kubeconfigs.MISTYPED) as error:
        detail = failures.quote_message(str(error))
        unusable = kubeconfigs.KubeconfigError(f"cannot be used{f': {detail}' if detail else ''}")
        raise _build_error(kubeconfig, unusable) from error
    return account


def _build_error(kubeconfig: str | None, error: kubeconfigs.KubeconfigError) -> errors.ConfigurationError:
    if kubeconfig is None:
        reason, fix = "there is no service account of a pod to use", "give --kubeconfig FILE outside a cluster"
        return errors.ConfigurationError(f"in-cluster account: {reason}", reason=reason, fix=fix)
    reason = f"kubeconfig {kubeconfig}: {error.reason}"
    return errors.ConfigurationError(f"{reason}; {error.fix}", reason=reason, fix=error.fix)


def _read_pod_account(impersonation: Impersonation) -> Account:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    token = POD_FILES / "token"
    if not host or not port or not _read_token(token, "of the pod"):
        raise kubeconfigs.KubeconfigError("no service account")
    host = f"[{host}]" if ":" in host else host
    account = Account(None, None, f"https://{host}:{port}", Proof(token_file=token), impersonation)
    account.tls = build_client_context(str(POD_FILES / "ca.crt"))
    return account


def _build_tls_context(selection: kubeconfigs.Selection, proof: Proof) -> ssl.SSLContext | bool:
    cluster = selection.cluster
    if not cluster.tree["server"].startswith("https"):
        return True
    authority = cluster.read_pem("certificate-authority")
    try:
        context = build_client_context(ca_text=authority.decode("ascii", "ignore") if authority else None)
    except (ssl.SSLError, ValueError):
        raise kubeconfigs.KubeconfigError(
            f"certificate-authority of {cluster.where} is not a PEM certificate"
        ) from None
    if proof.certificate:
        _load_client_certificate(context, proof)
    if cluster.tree.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_client_certificate(context: ssl.SSLContext, proof: Proof) -> None:
    with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads both from files
        certificate, key = pathlib.Path(folder, "certificate.pem"), pathlib.Path(folder, "key.pem")
        certificate.write_bytes(proof.certificate)
        key.write_bytes(proof.key)
        context.load_cert_chain(certificate, keyfile=key if proof.key else None)


# --- how a user of a kubeconfig authenticates --------------------------------------------------------------


async def _get_proof(user: kubeconfigs.Entry) -> Proof:
    """Return how a user authenticates. Runs its credential plugin. Raises KubeconfigError."""
    tree = user.tree
    certificate, key = (user.read_pem(name) or b"" for name in ("client-certificate", "client-key"))
    if "auth-provider" in tree:
        return Proof(f"Bearer {_get_stored_token(user)}", None, certificate, key)
    if "exec" in tree:
        return await _ask_plugin(user)
    if token := tree.get("token"):
        return Proof(f"Bearer {str(token).strip()}", None, certificate, key)
    if name := tree.get("tokenFile"):
        _read_token(user.folder / str(name), f"{name} of {user.where}")
        return Proof("", user.folder / str(name), certificate, key)
    if "username" in tree and "password" in tree:
        login = base64.b64encode(f"{tree['username']}:{tree['password']}".encode()).decode()
        return Proof(f"Basic {login}", None, certificate, key)
    return Proof("", None, certificate, key)


def _read_token(path: pathlib.Path, name: str) -> str:
    """Return the token of a file, without the newline that no header may have. Raises KubeconfigError."""
    try:
        token = path.read_bytes().decode().strip()
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else (error.strerror or "").lower()
        raise kubeconfigs.KubeconfigError(f"token file {name} {reason or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise kubeconfigs.KubeconfigError(f"token file {name} is not UTF-8 text") from None
    if not token:
        raise kubeconfigs.KubeconfigError(f"token file {name} is empty")
    return token


def _get_stored_token(user: kubeconfigs.Entry) -> str:
    """Return the ID token of `auth-provider: oidc`. kubectl renews and stores it; it has no other provider any more."""
    provider = user.tree["auth-provider"]
    name = provider.get("name") if isinstance(provider, Mapping) else provider
    token = str((provider.get("config") or {}).get("id-token") or "") if name == "oidc" else ""
    if not token:
        raise kubeconfigs.KubeconfigError(
            f"auth-provider {name} of {user.where} cannot be used",
            "log in again, or use a credential plugin (`exec:`), which has replaced it in kubectl",
        )
    body = token.split(".")[1] if token.count(".") == 2 else ""  # a JSON Web Token, RFC 7519
    expires = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)) or "{}").get("exp")
    if expires is not None and expires <= time.time():
        raise kubeconfigs.KubeconfigError(
            f"the ID token of auth-provider oidc of {user.where} has expired",
            "let kubectl renew it (kubectl version), or use a credential plugin (`exec:`)",
        )
    return token


async def _ask_plugin(user: kubeconfigs.Entry) -> Proof:
    """Run a credential plugin and return its token or certificate. Raises KubeconfigError."""
    plugin = user.tree["exec"]
    if not isinstance(plugin, Mapping):
        raise kubeconfigs.KubeconfigError(f"exec of {user.where} is no mapping with a `command:`")
    for key in ("command", "apiVersion"):
        if not plugin.get(key):
            raise kubeconfigs.KubeconfigError(f"exec of {user.where} has no `{key}:`")
    command, version = str(plugin["command"]), str(plugin["apiVersion"])
    for key, item in (("args", str), ("env", Mapping)):
        values = plugin.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, item) for value in values):
            entries = "texts" if item is str else "entries with `name:` and `value:`"
            raise kubeconfigs.KubeconfigError(f"`{key}:` in exec of {user.where} is not a list of {entries}")
    # a relative path begins at the kubeconfig, as for kubectl
    program = str(user.folder / command) if os.sep in command else command
    what = f"credential plugin {command} of {user.where}"
    if shutil.which(program) is None:
        hint = failures.quote_message(str(plugin.get("installHint") or ""))
        fix = hint or "install it, or use a kubeconfig that does not need it"
        raise kubeconfigs.KubeconfigError(f"{what} is not installed, or not on PATH", fix)
    arguments = [str(word) for word in plugin.get("args") or ()]
    fix = f"run it by hand to see why, and log in again: {' '.join([command, *arguments])}"
    environment = {str(item.get("name")): str(item.get("value") or "") for item in plugin.get("env") or ()}
    code, out, words = await _run_plugin([program, *arguments], environment, version)
    if code:
        detail = failures.quote_message(words.decode(errors="replace").strip())
        raise kubeconfigs.KubeconfigError(f"{what} ends with code {code}{detail and f': {detail}'}", fix)
    try:
        tree = json.loads(out)
        status = tree["status"] if tree["apiVersion"] == version and tree["kind"] == "ExecCredential" else {}
        if status.get("token"):
            return Proof(f"Bearer {status['token']}")
        return Proof("", None, status["clientCertificateData"].encode(), status["clientKeyData"].encode())
    except (ValueError, TypeError, KeyError, AttributeError):
        raise kubeconfigs.KubeconfigError(f"{what} does not print a valid ExecCredential", fix) from None


async def _run_plugin(command: list[str], environment: Mapping[str, str], version: str) -> _Result:
    """Run a plugin. Raises KubeconfigError after READ_SECONDS."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": terminal}}

    async def run() -> _Result:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, words = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                process.kill()
            raise
        return process.returncode or 0, out, words

    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _leave_when_cancelled(run())
    except TimeoutError:
        raise kubeconfigs.KubeconfigError(
            "its credential plugin does not end", "run the plugin by hand: it may be waiting for you to log in"
        ) from None


async def _leave_when_cancelled(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Await a coroutine, and end at once when cancelled.

    asyncio kills a program whose start is cancelled, and then waits until nobody holds its pipes. The children of an
    exec plugin may do so for long. A second cancellation, which comes when the event loop ends, ends that wait.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.sleep(0)  # so that the task begins to wait
        raise


def build_client_context(ca_file: str | None = None, ca_text: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies servers as client-go does, by the CAs in a file or PEM text, or else the system's.

    Since Python 3.13 `ssl.create_default_context` also requires the key identifiers and critical marks of RFC 5280 in
    every certificate of the chain (VERIFY_X509_STRICT). The CAs of many clusters lack them (EKS, for one). The checks
    that identify the server are unchanged: the issuer's signature, the issuer's right to issue, the host name, the
    dates, and the usage as a server. Raises OSError and ssl.SSLError.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_text)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
