"""Keeps the last valid policy in a second ConfigMap, so that a restart does not lose it.

The webhook's replicas write it. A server that starts while the policy is invalid uses the copy, and says so. As soon as
the policy is valid, the copy has no effect. Without the ConfigMap, which an installation brings, nothing is kept.
"""

import asyncio
import logging

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, sources, watch_wire
from railwright.fabric import names, views

_PATH = f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps/{installed_names.LAST_POLICY}"
_RETRY_SECONDS = 30.0
_MERGE = "application/merge-patch+json"
_LOG = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(views.ConfigMap).decode


class LastPolicy:
    """Restores the last valid policy into the store of a server, and stores each valid one if it `writes`."""

    def __init__(
        self,
        client: clients.Client,
        store: policies.PolicyStore,
        policy_object: sources.PolicyConfigMap,
        *,
        writes: bool,
    ) -> None:
        self._client, self._store, self._policy_object, self._writes = client, store, policy_object, writes
        self._changed = asyncio.Event()
        store.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Follow the policy until cancelled."""
        said = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._follow()
                said = ""
            except (errors.ClusterError, *watch_wire.UNREADABLE) as error:
                if str(error) != said:
                    said = str(error)
                    _LOG.warning("the last valid policy is not kept", extra={"fields": {"error": said}})
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _follow(self) -> None:
        """Store the policy if it is valid, otherwise restore the copy if there is no policy in force.

        A replica that is behind may replace a newer copy. It corrects that when it sees the newer policy.
        """
        present = self._policy_object.current
        is_needed = self._writes if self._store.valid else self._store.current is None
        if present is None or not is_needed or (body := await clients.find(self._client, _PATH)) is None:
            return
        copied = (_decode(body).data or {}).get(names.POLICY_KEY)
        if not self._store.valid:
            self._restore(copied)
        elif copied != (text := (present.data or {}).get(names.POLICY_KEY)):
            await self._client.patch(_PATH, {"data": {names.POLICY_KEY: text}}, _MERGE)

    def _restore(self, text: str | None) -> None:
        if text is None:  # as an installation brings it
            return
        result, fields = policies.read(text), {"copy": installed_names.LAST_POLICY}
        if isinstance(result, policies.Rejected):
            message, rejected = "the copy of the last valid policy is invalid and not used", result.errors
        else:
            message, rejected = "the policy is invalid; the last valid one is in force", self._store.errors
            self._store.restore(result)
        _LOG.warning(message, extra={"fields": {**fields, "errors": list(map(str, rejected))}})
