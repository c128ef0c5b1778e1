"""Feeds the policy ConfigMap into the policy store.

A long text is parsed in another process: a mebibyte of garbage takes seconds, which would delay reviews.
"""

import asyncio
import logging
from collections.abc import Sequence

from railwright.cluster import installed_names, policies, policy_process
from railwright.fabric import names, views
from railwright.fabric.policy import model

_AT_ONCE = 16 * 1024  # characters, which take about ten milliseconds; policies are shorter
_SECONDS = 120.0  # enough for the longest text on a busy node; the last valid policy stays in force meanwhile
_LOG = logging.getLogger("railwright.cluster")


class PolicyConfigMap:
    """A sink for the ConfigMap with the policy; other ConfigMaps are ignored."""

    def __init__(self, store: policies.PolicyStore) -> None:
        self._store = store
        self._turn = 0  # number of texts seen; a result counts only if its text is the newest
        self._reading: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()  # one text at a time: of the waiting texts only the newest is parsed
        self.uid = ""  # of the last ConfigMap: Events must contain it, or `kubectl describe` does not show them
        self.created_at = ""  # RFC 3339: creation of the last ConfigMap; "" if unknown

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """Apply the full list, which contains the ConfigMap or not."""
        for obj in objects:
            if obj.metadata.name == installed_names.POLICY:
                self.upsert(obj)
                return
        self._withdraw()

    def upsert(self, obj: views.ConfigMap) -> None:
        """Apply a new or changed ConfigMap. One without the key is an empty policy, which is rejected."""
        if obj.metadata.name == installed_names.POLICY:
            self.uid, self.created_at = obj.metadata.uid, obj.metadata.creation_timestamp or ""
            self._offer((obj.data or {}).get(names.POLICY_KEY, ""))

    def remove(self, obj: views.ConfigMap) -> None:
        """Record the deletion; the last valid policy stays in force."""
        if obj.metadata.name == installed_names.POLICY:
            self._withdraw()

    def _withdraw(self) -> None:
        self._turn += 1
        self._store.withdraw()

    def _offer(self, text: str) -> None:
        self._turn += 1
        if len(text) <= _AT_ONCE:
            self._store.offer(text)
            return
        reading = asyncio.get_running_loop().create_task(self._read(text, self._turn))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _read(self, text: str, turn: int) -> None:
        async with self._one:
            if turn != self._turn:
                return
            result = await _read(text)
        if turn == self._turn:
            self._store.take(result)


async def _read(text: str) -> model.Policy | policies.Rejected:
    try:
        return await policy_process.read(text, _SECONDS)
    except policy_process.ReaderError as error:  # the policy must take effect anyway
        _LOG.warning("policy read in this process, which slows reviews", extra={"fields": {"error": str(error)}})
        return await asyncio.to_thread(policies.read, text)
