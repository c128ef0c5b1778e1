"""Pods created at a steady rate through the real API server, and the result of each.

They are server-side dry runs: all of admission runs, and no pod has to be removed.
"""

import asyncio
import time
from typing import Self

from plane import api, manifests

PER_SECOND = 200
_MOST_AT_ONCE = 20  # callers wait for answers, as controllers do; a slow machine is not drowned


RAIL = {"name": "rail0", "resource": "x.y/hca", "device": "mlx5_0"}
POLICY = manifests.policy({"ib": manifests.fabric([RAIL])})
POD = manifests.pod("", "ib", schedulerName="nobody")
POD["metadata"] = {"generateName": "load-", "labels": POD["metadata"]["labels"]}


def is_injected(pod: api.Object, resource: str = "x.y/hca") -> bool:
    """Return True if a created POD is injected by POLICY."""
    return bool(pod["spec"]["containers"][0]["resources"]["limits"].get(resource) == "1")


class Load:
    """Creates PODs during an `async with` block, in a namespace where POLICY is in force.

    With another policy: pods of `fabric`, whose rails use `resource`.
    """

    def __init__(
        self,
        client: api.Api,
        namespace: str,
        *,
        per_second: int = PER_SECOND,
        fabric: str = "ib",
        resource: str = "x.y/hca",
        attempts: int = 5,  # a controller never gives up
    ) -> None:
        self._client, self._namespace = client, namespace
        self._per_second, self._resource, self._attempts = per_second, resource, attempts
        metadata = {"generateName": "load-", "labels": {"railwright.io/fabric": fabric}}
        self._pod = {**POD, "metadata": metadata}
        self.created = self.uninjected = self.lost = 0
        self.failures: list[tuple[float, str]] = []  # when, and what was said; each was tried again
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._driving = asyncio.create_task(self._drive())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._driving.cancel()
        await asyncio.gather(self._driving, return_exceptions=True)
        await asyncio.gather(*self._running)

    async def _drive(self) -> None:
        due = time.monotonic()
        while True:
            await self._room.acquire()
            task = asyncio.create_task(self._create())
            self._running.add(task)
            task.add_done_callback(self._done)
            due = max(due + 1 / self._per_second, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()

    async def _create(self) -> None:
        """Create one pod, and try again as a controller does."""
        for attempt in range(self._attempts):
            try:
                made = await self._client.create(self._pod, namespace=self._namespace, dry_run=True)
            except api.ApiError as error:
                self.failures.append((time.monotonic(), error.message))
                await asyncio.sleep(min(1.0, 0.05 * 2**attempt))
                continue
            self.created += 1
            self.uninjected += not is_injected(made, self._resource)
            return
        self.lost += 1
