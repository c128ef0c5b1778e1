"""Connects a command to the cluster that its options select: kubeconfig, context, impersonation, time for a request.

Every command that uses a cluster gets its client here.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from railwright.cli import output
from railwright.cli.options import ClusterOptions
from railwright.cluster import client as clients
from railwright.cluster import credentials, failures, kubeconfigs, watch_wire

_Result = TypeVar("_Result")
SNAPSHOT = "read files: --snapshot FILE --policy FILE"  # alternative of the commands that show a fabric


@asynccontextmanager
async def connect(
    cluster: ClusterOptions, instead: str = "", *, call_seconds: float | None = None
) -> AsyncIterator[clients.Client]:
    """Yield a client for the cluster, closed afterwards. Raise UnreadableError or ClusterError.

    `instead` names an alternative for the message that there is no kubeconfig. `call_seconds` limits a request unless
    the user has given a limit.
    """
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns if an interrupt ends a credential plugin later
    with output.show_progress("connecting to the cluster"):  # a credential plugin may take seconds
        client = await clients.connect(
            choose_kubeconfig(cluster.kubeconfig, instead),
            context=cluster.context,
            call_seconds=call_seconds if cluster.timeout is None else cluster.timeout,
            impersonation=credentials.Impersonation(cluster.user, cluster.groups),
        )
    try:
        yield client
    finally:
        await client.close()


def run(
    cluster: ClusterOptions,
    use: Callable[[clients.Client], Awaitable[_Result]],
    instead: str = "",
    *,
    call_seconds: float | None = None,
) -> _Result:
    """Return what `use` returns for a client of the cluster; see `connect`."""

    async def connect_and_use() -> _Result:
        async with connect(cluster, instead, call_seconds=call_seconds) as client:
            return await use(client)

    return asyncio.run(connect_and_use())


async def read_object(client: clients.Client, path: str, shape: type[_Result]) -> _Result:
    """Return an object. Raise ClusterError, ForeignError if the answer is not an object of this shape."""
    body = await client.get(path)
    try:
        return msgspec.json.decode(body, type=shape)
    except watch_wire.UNREADABLE as error:
        raise failures.build_foreign(client.host, path, str(error)) from None


async def read_account(cluster: ClusterOptions, instead: str = "") -> credentials.Account:
    """Return the account of the cluster. Raise UnreadableError or ClusterError."""
    impersonation = credentials.Impersonation(cluster.user, cluster.groups)
    return await credentials.read(choose_kubeconfig(cluster.kubeconfig, instead), cluster.context, impersonation)


def choose_kubeconfig(given: str, instead: str = "") -> str | None:
    """Return `given`, or else what kubectl would use; None in a pod, which uses its ServiceAccount.

    Raises UnreadableError without any of these. `instead` names an alternative for its message.
    """
    kubeconfig = given or kubeconfigs.find()
    if kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return kubeconfig
    other = f", or {instead}" if instead else ""
    raise output.UnreadableError(
        f"no kubeconfig ({' and '.join(kubeconfigs.list_names())} does not exist); give --kubeconfig FILE{other}"
    )
