"""Address and credentials of the API server, read by kubernetes_asyncio and reloaded when necessary.

This is the only user of that library: it reads kubeconfigs (certificates, tokens, exec plugins) and the in-cluster
service account with its token refresh. The library is imported on first use only, because a server with a snapshot
file does not need it; `railwright.cluster.kubernetes_library` keeps the import small.
"""

import asyncio
import os
import pathlib
import ssl
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib import parse

from railwright.cluster import errors, kubernetes_library, tls

if TYPE_CHECKING:
    from kubernetes_asyncio.client import configuration

READ_SECONDS = 60.0  # for exec plugins: one that waits for input would block a server forever


class Impersonation(NamedTuple):
    """The user and groups to act as, with the right `impersonate`; empty for one's own account."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()  # (key, value); a key may occur several times

    def list_headers(self) -> Sequence[tuple[str, str]]:
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


class Account:
    """Address and credentials from a kubeconfig, or from the service account of this pod (`kubeconfig` None)."""

    def __init__(
        self,
        kubeconfig: str | None,
        settings: "configuration.Configuration",
        context: str | None = None,
        impersonation: Impersonation = NOBODY_ELSE,
    ) -> None:
        self._kubeconfig, self._settings, self._context = kubeconfig, settings, context
        self.impersonation = impersonation  # its headers are not among `headers`, because one may repeat
        self.host = str(settings.host or "").rstrip("/")
        self.tls = _build_tls_context(settings)
        self.server_name: str | None = settings.tls_server_name  # set if the certificate has another name than the host
        self.proxy: str | None = settings.proxy  # from the kubeconfig's cluster, never from the environment

    async def headers(self) -> dict[str, str]:
        """Return the authentication headers, read again for every call, because tokens are rotated.

        Raises ConfigurationError.
        """
        from kubernetes_asyncio import config  # noqa: PLC0415 - see the module's docstring

        try:
            given = await self._settings.auth_settings()  # calls the refresh hook, which reads the token file
        except (config.ConfigException, OSError, ValueError) as error:
            raise _build_error(self._kubeconfig, self._context, error) from error
        # a token file may end with a newline, which is not allowed in a header
        return {
            setting["key"]: setting["value"].strip()
            for setting in given.values()
            if setting["in"] == "header" and setting["value"]
        }

    async def renew(self) -> "Account":
        """Return the reloaded account. Raises ConfigurationError."""
        return await read(self._kubeconfig, self._context, self.impersonation)


async def read(
    kubeconfig: str | None, context: str | None = None, impersonation: Impersonation = NOBODY_ELSE
) -> Account:
    """Read the account of a kubeconfig in its current or the given context, or of the pod this runs in.

    Raises ConfigurationError.
    """
    if kubeconfig is not None and not _any_exists(kubeconfig):
        raise _build_error(kubeconfig, context, None)  # the library would only warn
    kubernetes_library.import_config()
    from kubernetes_asyncio import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes_asyncio.client import configuration  # noqa: PLC0415 - see the module's docstring

    from railwright.cluster import kubeconfig_faults  # noqa: PLC0415 - reads YAML, as that library does

    settings = configuration.Configuration()
    try:
        if kubeconfig is None:
            # untyped library
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            async with asyncio.timeout(READ_SECONDS):
                loading = config.load_kube_config(
                    config_file=kubeconfig, context=context, client_configuration=settings
                )
                await _leave_when_cancelled(loading)
            user = kubeconfig_faults.check(kubeconfig, context)
            _check_plugin_result(user, settings)
            impersonation = impersonation.complete(user)
        return Account(kubeconfig, settings, context, impersonation)
    except errors.ConfigurationError:
        raise
    except Exception as error:  # malformed files and failing exec plugins raise arbitrary exceptions
        raise _build_error(kubeconfig, context, error) from error


def _check_plugin_result(user: Mapping[str, Any], settings: "configuration.Configuration") -> None:
    """Raise ValueError if an exec plugin gave no credentials: the requests would be those of an anonymous user."""
    if user.get("exec") and not (settings.api_key or settings.cert_file):
        raise ValueError("exec: neither token nor clientCertificateData")


async def _leave_when_cancelled(coroutine: Coroutine[Any, Any, object]) -> None:
    """Await a coroutine, and end at once when cancelled.

    asyncio kills a program whose start is cancelled, and then waits until nobody holds its pipes. The children of an
    exec plugin may do so for long. A second cancellation, which comes when the event loop ends, ends that wait.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.sleep(0)  # so that the task begins to wait
        raise


def _any_exists(kubeconfig: str) -> bool:
    """True if at least one of the files exists."""
    return any(pathlib.Path(path).expanduser().exists() for path in kubeconfig.split(os.pathsep) if path)


def _build_error(kubeconfig: str | None, context: str | None, error: BaseException | None) -> errors.ConfigurationError:
    from railwright.cluster import kubeconfig_faults  # noqa: PLC0415 - reads YAML, needed for errors only

    return kubeconfig_faults.explain_unusable(kubeconfig, context, error)


def _build_tls_context(settings: "configuration.Configuration") -> ssl.SSLContext | bool:
    if not str(settings.host or "").startswith("https"):
        # no TLS but to an https proxy, for which aiohttp's own context may lack the machine's CA: see http_library
        return ssl.create_default_context() if str(settings.proxy or "").startswith("https") else True
    context = tls.build_client_context(settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:  # the kubeconfig sets insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
