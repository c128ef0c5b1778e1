"""Keeps the last valid policy in a second ConfigMap, so that a restart does not lose it.

Servers read this copy when they start. If the policy is invalid then, they use the copy until a valid policy is
written. The webhook's replicas write the copy; the newest version of the policy wins. Without the second ConfigMap,
which is part of the installation, nothing is stored.
"""

import asyncio
import logging

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, watch_wire
from railwright.fabric import names, views
from railwright.fabric.policy import model

_PATH = f"/api/v1/namespaces/{installed_names.NAMESPACE}/configmaps/{installed_names.LAST_POLICY}"
# annotations of the copy: resourceVersion and UID of the policy. Versions are compared within one UID only: those of a
# backup are another cluster's, or of an object that was deleted since.
_VERSION, _UID = f"{names.DOMAIN}/policy-version", f"{names.DOMAIN}/policy-uid"
_READ_AGAIN_SECONDS, _WRITE_AGAIN_SECONDS = 1.0, 30.0
_MOST_REFUSALS = 5  # an API server that starts refuses everything until it has read its roles
_FORBIDDEN, _CONFLICT = 403, 409
_MERGE = "application/merge-patch+json"
_LOG = logging.getLogger(__name__)


async def wait_for_copy(client: clients.Client) -> model.Policy | None:
    """Return the stored policy; None if it is missing or invalid, or may not be read.

    Waits until the API server answers.
    """
    result: model.Policy | policies.RejectedPolicy | None = None
    refusals = 0
    while True:
        try:
            result = await read_copy(client)
            break
        except errors.ClusterError as error:
            refusals += error.status == _FORBIDDEN or isinstance(error, errors.ForeignError)
            if refusals == _MOST_REFUSALS:
                _LOG.warning("the last valid policy cannot be read", extra={"fields": {"error": str(error)}})
                break
            await asyncio.sleep(_READ_AGAIN_SECONDS)
    if isinstance(result, policies.RejectedPolicy):
        fields = {"copy": installed_names.LAST_POLICY, "errors": list(map(str, result.errors))}
        _LOG.warning("the copy of the last valid policy is invalid and not used", extra={"fields": fields})
        return None
    return result


async def read_copy(client: clients.Client) -> model.Policy | policies.RejectedPolicy | None:
    """Return the stored policy, or its errors; None if none is stored. Raises ClusterError."""
    copy = await watch_wire.find_object(client, _PATH, views.ConfigMap)
    text = copy.data.get(names.POLICY_KEY) if copy is not None and copy.data else None
    return policies.read(text) if text is not None else None


async def keep_copy(client: clients.Client, store: policies.PolicyStore) -> None:
    """Store a copy of each valid policy of the cluster, until cancelled."""
    changed, said = asyncio.Event(), ""
    store.subscribe(lambda _: changed.set())
    while True:
        changed.clear()
        problem = ""
        try:
            if store.config_map is not None and store.valid:
                await _store_copy(client, store.config_map)
        except errors.ClusterError as error:
            changed.set()
            if error.status != _CONFLICT:  # the other replica was first: compare again
                problem = str(error)
                if problem != said:
                    _LOG.warning("the last valid policy is not stored", extra={"fields": {"error": problem}})
                await asyncio.sleep(_WRITE_AGAIN_SECONDS)
        said = problem
        await changed.wait()


async def _store_copy(client: clients.Client, policy: views.ConfigMap) -> None:
    """Store the policy, unless the copy has the same text, or a newer version of the same ConfigMap."""
    copy = await watch_wire.find_object(client, _PATH, views.ConfigMap)
    text = (policy.data or {}).get(names.POLICY_KEY, "")
    if copy is None or (copy.data or {}).get(names.POLICY_KEY) == text:
        return
    version, uid, annotations = policy.metadata.resource_version, policy.metadata.uid, copy.metadata.annotations
    copied = annotations.get(_VERSION, "")
    are_versions = copied.isdecimal() and version.isdecimal()
    if annotations.get(_UID) == uid and are_versions and int(copied) > int(version):
        fields = {"version": version, "copied": copied, "copy": installed_names.LAST_POLICY}
        _LOG.info("the stored copy is newer than this policy and is not replaced", extra={"fields": fields})
        return
    metadata = {"resourceVersion": copy.metadata.resource_version, "annotations": {_VERSION: version, _UID: uid}}
    await client.patch(_PATH, {"metadata": metadata, "data": {names.POLICY_KEY: text}}, _MERGE)
