"""Loads address and credentials of the API server from a kubeconfig or this pod, by kubernetes_asyncio.

This module adds to the library: the files that kubectl reads, the choice between several current contexts, the
impersonation in a kubeconfig's user, and errors that name the file and the fix. The library takes 0.3 s to import, so
only functions that need it import it.
"""

import asyncio
import contextlib
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import yaml

from railwright.cluster import errors

_NOTHING: Mapping[str, Any] = {}
_FIX = "correct it (kubectl config view and kubectl config get-contexts show it), or fetch it again"
_UNUSABLE = "is not a kubeconfig that can be used"
READ_SECONDS = 60.0  # for credential plugins: one that waits for input would block a server forever
logging.getLogger("kubernetes_asyncio").setLevel(logging.CRITICAL)  # it also logs the errors that it raises


Headers = Sequence[tuple[str, str]]  # a name may occur several times


def build_impersonation(user: str = "", groups: Sequence[str] = (), given: Mapping[str, Any] = _NOTHING) -> Headers:
    """Return the headers of a request that impersonates another user.

    `given` is a user in a kubeconfig: its `as` and `as-groups` replace missing arguments, as in kubectl.
    """
    names: dict[str, Sequence[Any]] = {
        "User": [user or given.get("as")],
        "Uid": [given.get("as-uid")],
        "Group": groups or given.get("as-groups") or (),
    }
    for key, values in (given.get("as-user-extra") or {}).items():
        names[f"Extra-{parse.quote(str(key), safe='')}"] = values or ()
    return [(f"Impersonate-{name}", str(value)) for name, values in names.items() for value in values if value]


class Access(NamedTuple):
    """The library's configuration for an API server, and the impersonation headers."""

    configuration: Any  # kubernetes_asyncio.client.Configuration
    impersonation: Headers


def find_existing_files() -> str | None:
    """Return the existing files that kubectl would merge, joined by os.pathsep; None if none exists."""
    paths = (pathlib.Path(name).expanduser() for name in list_files())
    return os.pathsep.join(str(path) for path in paths if path.exists()) or None


def list_files() -> list[str]:
    """Return the paths of the files that kubectl would merge, whether they exist or not."""
    names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return names or ["~/.kube/config"]


def find_namespace(kubeconfig: str, context: str | None) -> str:
    """Return the namespace of a context in `kubeconfig`, or in the files that kubectl merges if it is "".

    Returns `default` if the context has no namespace, or cannot be read: `load` reports that error.
    """
    if not (kubeconfig or find_existing_files()):
        return "default"
    from kubernetes_asyncio.config import kube_config  # noqa: PLC0415 - see the module's docstring

    with contextlib.suppress(Exception):
        merger = kube_config.KubeConfigMerger(kubeconfig or find_existing_files() or "")
        loader = kube_config.KubeConfigLoader(merger.config, active_context=context or _find_current_context(merger))
        return str(loader.current_context["context"].get("namespace") or "default")
    return "default"


async def load(kubeconfig: str | None, context: str | None, user: str = "", groups: Sequence[str] = ()) -> Access:
    """Return address and credentials of a context in `kubeconfig`; of this pod's service account if that is None.

    Runs the credential plugin that the kubeconfig names. Raises ConfigurationError.
    """
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - see the module's docstring

    configuration = client.Configuration(host="")
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)
            _keep_token(configuration)
            return Access(configuration, build_impersonation(user, groups))
        async with asyncio.timeout(READ_SECONDS):
            return await _load_files(kubeconfig, context, configuration, (user, groups))
    except errors.ConfigurationError:
        raise
    except TimeoutError:
        reason = f"its credential plugin does not end within {READ_SECONDS:.0f} s"
        fix = "run the credential plugin by hand: it may be waiting for you to log in"
        raise build_error(kubeconfig, reason, fix) from None
    except Exception as error:  # the library raises whatever a malformed file, a plugin or an identity provider causes
        raise build_error(kubeconfig, _describe_error(error)) from error


def _keep_token(configuration: Any) -> None:
    """Keep the last token while its file, which the library reads every minute, cannot be read."""
    refresh = configuration.refresh_api_key_hook

    def refresh_if_readable(configuration: Any) -> None:
        with contextlib.suppress(Exception):
            refresh(configuration)

    configuration.refresh_api_key_hook = refresh_if_readable


async def _load_files(
    kubeconfig: str, context: str | None, configuration: Any, given: tuple[str, Sequence[str]]
) -> Access:
    from kubernetes_asyncio.config import kube_config  # noqa: PLC0415 - see the module's docstring

    merger = kube_config.KubeConfigMerger(kubeconfig)
    if not merger.paths:
        fix = "give --kubeconfig FILE, or set KUBECONFIG to a file that exists"
        raise build_error(kubeconfig, "does not exist", fix)
    context = context or _find_current_context(merger)
    loader = kube_config.KubeConfigLoader(merger.config, active_context=context, config_base_path=None)
    entry = merger.config["users"].get_with_name(loader.current_context["context"].get("user"), safe=True)
    user = (entry and entry.value["user"]) or {}
    if "exec" in user and os.sep in user["exec"].get("command", ""):  # a relative path begins at the kubeconfig
        user["exec"]["command"] = str(pathlib.Path(entry.path).parent / user["exec"]["command"])
    if "auth-provider" in user:  # many identity providers accept a refresh token once, and the next is for kubectl
        (user["auth-provider"].get("config") or {}).pop("refresh-token", None)
    await loader.load_and_set(configuration)
    if token := configuration.api_key.get("BearerToken"):
        configuration.api_key["BearerToken"] = token.strip()  # a token file may end with a newline, a header may not
    return Access(configuration, build_impersonation(*given, user))


def _find_current_context(merger: Any) -> str | None:
    """Return the current context of the first file that has one, as kubectl does; the library reads the last file's."""
    return next((tree["current-context"] for tree in merger.config_files.values() if tree.get("current-context")), None)


def build_error(kubeconfig: str | None, reason: str, fix: str = "") -> errors.ConfigurationError:
    """Return the error for a kubeconfig, or a pod's service account (None), that cannot be used."""
    place, usual_fix = f"kubeconfig {kubeconfig}", _FIX
    if kubeconfig is None:
        place, usual_fix = "there is no service account of a pod to use", "give --kubeconfig FILE outside a cluster"
    return errors.ConfigurationError(f"{place}: {reason}", fix=fix or usual_fix)


def _describe_error(error: Exception) -> str:
    """Return what is wrong with a kubeconfig, in one line and without tokens."""
    from kubernetes_asyncio.config import ConfigException  # noqa: PLC0415 - see the module's docstring

    if isinstance(error, OSError):
        return ": ".join(filter(None, (error.filename, str(error.strerror or error).lower())))
    if not isinstance(error, ConfigException | yaml.YAMLError):
        return _UNUSABLE
    # The library names an entry by its whole content, tokens included. A credential plugin may print a traceback.
    message = str(error).partition("{")[0]
    return errors.quote_message(message) or errors.quote_message(message.partition(". ")[0]) or _UNUSABLE
