"""Gives the controllers the parts of the server that they use, and tells them why a write may fail."""

from collections.abc import Callable

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, events
from railwright.fabric.policy import model as policies
from railwright.serving import metrics
from webhook import state as states

NOT_FOUND, CONFLICT = 404, 409


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the server that a controller uses.

    `get_problem` returns "" once the caches are complete and fresh. An object is removed when nothing has named it for
    `unused_seconds`.
    """

    client: clients.Client
    state: states.State
    get_policy: Callable[[], policies.Policy | None]
    get_problem: Callable[[], str]
    poster: events.Events
    counters: metrics.Metrics
    unused_seconds: float

    async def delete(self, path: str, uid: str) -> None:
        """Delete an object, unless it was replaced by another one."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self.client.delete(path, msgspec.json.encode(options))


def was_late(error: errors.ClusterError) -> bool:
    """True if a write failed because the object was created, changed or deleted meanwhile, as by another replica."""
    return error.status in (NOT_FOUND, CONFLICT)
