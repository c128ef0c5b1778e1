"""Connects a command to the cluster that its options select, and selects an installation.

Every command that uses a cluster gets its client here. The names of an installation are constants of the process, which
`railwright.cluster.installed_names` reads from the environment when it is imported. So this module must not import it,
not even indirectly.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib import parse

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs, watch_wire
from railwright.fabric import views

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
SNAPSHOT = "read files: --snapshot FILE --policy FILE"  # alternative of the commands that show a fabric


@asynccontextmanager
async def connect(
    arguments: argparse.Namespace, instead: str = "", *, call_seconds: float = clients.CALL_SECONDS
) -> AsyncIterator[clients.Client]:
    """Yield a client for the cluster that the options select. Raise UnreadableError or ClusterError.

    `instead` is another way to call the command, for the message that there is no kubeconfig. `call_seconds` limits
    each request unless the user has given --request-timeout.
    """
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns if an interrupt ends a credential plugin later
    with output.show_progress("connecting to the cluster"):  # a credential plugin may take seconds
        client = await clients.connect(
            choose_kubeconfig(arguments.kubeconfig, instead),
            context=arguments.context,
            call_seconds=call_seconds if arguments.request_timeout is None else arguments.request_timeout,
            user=arguments.as_user,
            groups=tuple(arguments.as_group),
        )
    try:
        yield client
    finally:
        await client.close()


def run_with_client(
    arguments: argparse.Namespace,
    use: Callable[[clients.Client], Awaitable[_Result]],
    instead: str = "",
    *,
    call_seconds: float = clients.CALL_SECONDS,
) -> _Result:
    """Connect to the cluster that the options select, and return the result of `use(client)`; see `connect`."""

    async def connect_and_use() -> _Result:
        async with connect(arguments, instead, call_seconds=call_seconds) as client:
            return await use(client)

    return asyncio.run(connect_and_use())


async def call_for_each(
    call: Callable[[_Item], Awaitable[_Result]],
    items: Iterable[_Item],
    *,
    at_once: int = 8,
    advance: Callable[[], None] = lambda: None,
) -> list[_Result]:
    """Call a function for each item, at most `at_once` at the same time. Return the results in the order of the items.

    `advance()` is called when the function has returned for an item.
    """
    semaphore = asyncio.Semaphore(at_once)

    async def call_in_turn(item: _Item) -> _Result:
        async with semaphore:
            result = await call(item)
        advance()
        return result

    return await asyncio.gather(*map(call_in_turn, items))


async def list_if_allowed(client: clients.Client, path: str, view: Any) -> list[Any] | None:
    """Return the objects of `path`; none if the API is not served, None if the caller may not list them.

    Raises ClusterError.
    """
    try:
        return await watch_wire.list_objects(client, path, view)
    except errors.ApiError as error:
        if error.status not in (403, 404):
            raise
        return [] if error.status == 404 else None  # the API server itself writes no Status about an unknown API


def choose_kubeconfig(given: str, instead: str = "") -> str | None:
    """Return `given`, otherwise kubectl's kubeconfig; None in a pod, which uses its ServiceAccount.

    Raises UnreadableError if none of these exists. `instead` is another way to call the command, for its message.
    """
    kubeconfig = given or kubeconfigs.find_existing_files()
    if kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return kubeconfig
    other = f", or {instead}" if instead else ""
    raise output.UnreadableError(
        f"no kubeconfig ({', '.join(kubeconfigs.list_files())} does not exist); give --kubeconfig FILE{other}"
    )


# --- the installation ----------------------------------------------------------------------------------------

_VARIABLES = ("RAILWRIGHT_NAMESPACE", "RAILWRIGHT_INSTALLATION")
_DEPLOYMENTS = {"labelSelector": "app.kubernetes.io/part-of=railwright,app.kubernetes.io/component"}
_COMPONENT = "app.kubernetes.io/component"


class _Deployment(views.View, frozen=True):
    metadata: views.ObjectMeta


class Installation(NamedTuple):
    """An installation: `name` is the first part of the names of its objects."""

    namespace: str
    name: str


async def select_installation(client: clients.Client, namespace: str) -> str:
    """Find the installation in the cluster, set its names for this process, and return its namespace.

    `namespace` limits the search, "" searches all. RAILWRIGHT_NAMESPACE and RAILWRIGHT_INSTALLATION take precedence.
    The default names stay if no installation is found, or if the caller may not list Deployments. Raises
    UnreachableError, and UnreadableError if there are several installations.
    """
    if any(map(os.environ.get, _VARIABLES)):
        return namespace
    installations = await _find_installations(client, namespace)
    if len(installations) > 1:
        raise output.UnreadableError(_describe_choice(installations, namespace))
    for installation in installations:
        os.environ.update(zip(_VARIABLES, installation, strict=True))
        return installation.namespace
    return namespace


async def _find_installations(client: clients.Client, namespace: str) -> Sequence[Installation]:
    """Return the installations in a namespace, or in all for "", sorted; () if Deployments cannot be listed."""
    scope = f"namespaces/{parse.quote(namespace, safe='')}/" if namespace else ""
    try:
        deployments = await watch_wire.list_objects(
            client, f"/apis/apps/v1/{scope}deployments", _Deployment, _DEPLOYMENTS
        )
    except (errors.ApiError, errors.ForeignError):
        return ()  # the command reports it, once it reads something
    return sorted(
        {
            Installation(metadata.namespace, metadata.name.removesuffix(suffix))
            for metadata in (deployment.metadata for deployment in deployments)
            if metadata.name.endswith(suffix := f"-{metadata.labels.get(_COMPONENT)}")
        }
    )


def _describe_choice(installations: Sequence[Installation], namespace: str) -> str:
    names = ", ".join(f"{name} in namespace {place}" for place, name in installations)
    first = installations[0]
    if len({place for place, _ in installations}) == len(installations):
        fix = f"choose one by its namespace: -n {first.namespace}"
    else:
        fix = f"choose one: export RAILWRIGHT_NAMESPACE={first.namespace} RAILWRIGHT_INSTALLATION={first.name}"
    where = f"namespace {namespace}" if namespace else "the cluster"
    return f"{where} has {len(installations)} installations of railwright: {names}; {fix}"
