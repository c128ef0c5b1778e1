"""Keeps the last valid policy in a second ConfigMap, so that a restart does not lose it.

The webhook's replicas write it; the newest version of the policy wins. A server that starts while the policy is invalid
uses the copy, and says so. As soon as the policy is valid, the copy has no effect. Without the ConfigMap, which is part
of the installation, nothing is stored.
"""

import asyncio
import logging

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, watch_wire
from railwright.fabric import names, views

_PATH = f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps/{installed_names.LAST_POLICY}"
# annotations of the copy: resourceVersion and UID of the policy. Versions are compared within one UID only: those of a
# backup are another cluster's, or of an object that was deleted since.
_VERSION, _UID = f"{names.DOMAIN}/policy-version", f"{names.DOMAIN}/policy-uid"
_RETRY_SECONDS = 30.0
_CONFLICT = 409
_MERGE = "application/merge-patch+json"
_LOG = logging.getLogger(__name__)


class LastPolicy:
    """Restores the last valid policy into a server's store. With `writes`, also saves each valid policy."""

    def __init__(self, client: clients.Client, store: policies.PolicyStore, *, writes: bool) -> None:
        self._client, self._store, self._writes = client, store, writes
        self._changed = asyncio.Event()
        store.subscribe(lambda _: self._changed.set())
        store.awaits_copy = True

    async def run(self) -> None:
        """Follow the policy until cancelled."""
        said = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            problem = ""
            try:
                await self._compare_with_copy()
            except errors.ClusterError as error:
                problem = str(error)
                if problem != said:
                    _LOG.warning("the last valid policy is not kept", extra={"fields": {"error": problem}})
            said = problem
            if self._store.awaits_copy and self._store.config_map is not None and not self._changed.is_set():
                self._store.end_wait_for_copy()
            if problem:
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _compare_with_copy(self) -> None:
        present, is_valid = self._store.config_map, self._store.valid
        if present is None or (not self._writes if is_valid else self._store.current is not None):
            return
        copy = await watch_wire.find_object(self._client, _PATH, views.ConfigMap)
        if copy is None or self._changed.is_set():  # the policy has changed meanwhile: compare again
            return
        if is_valid:
            await self._store_copy(present, copy)
        else:
            self._restore(copy)

    async def _store_copy(self, present: views.ConfigMap, copy: views.ConfigMap) -> None:
        """Store the policy, unless the copy is of a newer version of the same object."""
        version, text = present.metadata.resource_version, (present.data or {}).get(names.POLICY_KEY, "")
        uid, annotations = present.metadata.uid, copy.metadata.annotations
        copied = annotations.get(_VERSION, "")
        are_versions = copied.isdecimal() and version.isdecimal()
        if annotations.get(_UID) == uid and are_versions and int(copied) > int(version):
            fields = {"version": version, "copied": copied, "copy": installed_names.LAST_POLICY}
            _LOG.info("the copy of the policy is newer and stays", extra={"fields": fields})
            return
        if (copy.data or {}).get(names.POLICY_KEY) == text:
            return
        metadata = {"resourceVersion": copy.metadata.resource_version, "annotations": {_VERSION: version, _UID: uid}}
        try:
            await self._client.patch(_PATH, {"metadata": metadata, "data": {names.POLICY_KEY: text}}, _MERGE)
        except errors.ApiError as error:
            if error.status != _CONFLICT:
                raise
            self._changed.set()  # the other replica was first: compare again

    def _restore(self, copy: views.ConfigMap) -> None:
        text = (copy.data or {}).get(names.POLICY_KEY)
        if text is None:  # as an installation brings it
            return
        result = policies.read(text)
        invalid, message = self._store.errors, "the policy is invalid; the last valid one is in force"
        if isinstance(result, policies.Rejected):
            invalid, message = result.errors, "the copy of the last valid policy is invalid and not used"
        else:
            self._store.restore(result)
        fields = {"copy": installed_names.LAST_POLICY, "errors": list(map(str, invalid))}
        fields["version"] = copy.metadata.annotations.get(_VERSION, "")
        _LOG.warning(message, extra={"fields": fields})
