"""From the policy ConfigMap to the policy store: the text of its one key, and its absence.

Owns that a long text is read in another process: a mebibyte of garbage takes seconds, and reviews do not wait.
"""

import asyncio
import logging
from collections.abc import Sequence

from railwright.cluster import policies, policy_process
from railwright.fabric import names, views
from railwright.fabric.policy import model

_AT_ONCE = 16 * 1024  # characters: some ten milliseconds; policies are shorter
_SECONDS = 120.0  # for the longest text on a busy node; the last good policy is in force meanwhile
_LOG = logging.getLogger("railwright.cluster")


class PolicyConfigMap:
    """A sink for the ConfigMap that holds the policy; other ConfigMaps are not looked at."""

    def __init__(self, store: policies.PolicyStore) -> None:
        self._store = store
        self._turn = 0  # counts what was seen: of texts that are being read only the newest counts
        self._reading: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()  # text at a time: of those that wait only the newest is read
        self.uid = ""  # of the ConfigMap last seen: Events name it, or `kubectl describe` does not show them

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """The full list: the one ConfigMap, or none."""
        for obj in objects:
            if obj.metadata.name == names.POLICY_CONFIGMAP:
                self.upsert(obj)
                return
        self._withdraw()

    def upsert(self, obj: views.ConfigMap) -> None:
        """It appeared or changed. A ConfigMap without the key is an empty policy, and refused as one."""
        if obj.metadata.name == names.POLICY_CONFIGMAP:
            self.uid = obj.metadata.uid
            self._offer((obj.data or {}).get(names.POLICY_KEY, ""))

    def remove(self, obj: views.ConfigMap) -> None:
        """It is gone; the last good policy stays."""
        if obj.metadata.name == names.POLICY_CONFIGMAP:
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
    except policy_process.ReaderError as error:  # a policy has to come into force all the same
        _LOG.warning("policy read in this process, which slows reviews", extra={"fields": {"error": str(error)}})
        return await asyncio.to_thread(policies.read, text)
