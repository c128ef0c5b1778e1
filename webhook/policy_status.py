"""Writes the status of the FabricPolicy: whether its spec is accepted, its digest, or all its errors.

Every replica does, without a leader. It waits a random part of a second and writes only what nobody has written yet,
and for each generation of the spec once: two versions of railwright that disagree do not overwrite each other forever.
"""

import asyncio
import datetime as dt
import logging
import random
from collections.abc import Callable

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, resources, sources
from railwright.fabric import text, views
from webhook import controllers

ACCEPTED, VALID, INVALID = "Accepted", "Valid", "Invalid"  # stable: a condition and its reasons
_PATH = f"{resources.FABRIC_POLICIES.path}/{installed_names.POLICY}/status"
_SPREAD_SECONDS = 1.0  # replicas learn of a change at the same time
_MAX_MESSAGE = 16 * 1024  # characters; the limit of a condition is 32 Ki
_log = logging.getLogger("railwright.policy")


class PolicyStatus:
    """Keeps the status of the FabricPolicy up to date."""

    def __init__(
        self,
        client: clients.Client,
        objects: sources.PolicyObjects,
        *,
        now: Callable[[], dt.datetime],
        spread_seconds: float = _SPREAD_SECONDS,
    ) -> None:
        self._client, self._objects, self._now, self._spread = client, objects, now, spread_seconds
        self._chance = random.Random()  # noqa: S311 - jitter, not secrecy
        self._changed = asyncio.Event()
        self._reported = ("", 0)  # uid and generation that need no write any more
        objects.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Write until cancelled. A write that fails is logged and repeated."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pauses = clients.Backoff(clients.LONGEST_PAUSE_SECONDS, self._chance)
            while self._find_resource() is not None:
                await asyncio.sleep(self._chance.uniform(0, self._spread))
                if not await self._report():
                    await pauses.pause()

    def _find_resource(self) -> views.FabricPolicy | None:
        """Return the resource if its status is to be written."""
        resource, result = self._objects.resource.current, self._objects.resource_result
        if resource is None or result is None or _identify(resource) == self._reported:
            return None
        if is_reported(resource, result):
            self._reported = _identify(resource)
            return None
        return resource

    async def _report(self) -> bool:
        """Write the status if it is still to be written. Return False if that failed."""
        resource, result = self._find_resource(), self._objects.resource_result
        if resource is None or result is None:
            return True
        change = {
            "metadata": {"resourceVersion": resource.metadata.resource_version},
            "status": build_status(resource, result, self._now()),
        }
        try:
            await self._client.patch(_PATH, msgspec.json.encode(change), "application/merge-patch+json")
        except errors.ClusterError as error:
            if not controllers.was_late(error):  # otherwise the watch reports the change
                _log.warning("status of the policy not written", extra={"fields": {"error": str(error)}})
            return False
        self._reported = _identify(resource)
        return True


def _identify(resource: views.FabricPolicy) -> tuple[str, int]:
    return resource.metadata.uid, resource.metadata.generation


def build_status(resource: views.FabricPolicy, result: sources.Result, now: dt.datetime) -> views.PolicyStatus:
    """Return the status for the result of reading the resource's spec. An invalid spec keeps the last digest."""
    before = resource.status or views.PolicyStatus()
    is_rejected = isinstance(result, policies.Rejected)
    condition = views.PolicyCondition(
        type=ACCEPTED,
        status="False" if is_rejected else "True",
        reason=INVALID if is_rejected else VALID,
        message=_describe(result),
        observed_generation=resource.metadata.generation,
        last_transition_time=now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    for old in before.conditions:
        if old.type == ACCEPTED and old.status == condition.status and old.last_transition_time:
            condition = msgspec.structs.replace(condition, last_transition_time=old.last_transition_time)
    return views.PolicyStatus(
        observed_generation=resource.metadata.generation,
        digest=before.digest if isinstance(result, policies.Rejected) else result.digest,
        conditions=(condition,),
    )


def is_reported(resource: views.FabricPolicy, result: sources.Result) -> bool:
    """True if the resource has the status that `build_status` returns, whatever its transition time."""
    status = build_status(resource, result, dt.datetime.fromtimestamp(0, dt.UTC))
    return resource.status == status


def _describe(result: sources.Result) -> str:
    if not isinstance(result, policies.Rejected):
        return "the policy is in force"
    return text.limit("; ".join(map(str, result.errors)), _MAX_MESSAGE)
