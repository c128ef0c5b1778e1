"""Feeds the policy of a cluster into the policy store: of the FabricPolicy if it exists, otherwise of the ConfigMap.

A long text is parsed in another process: a mebibyte of garbage takes seconds, which would delay reviews.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from railwright.cluster import installed_names, manifests, policies, policy_process
from railwright.fabric import names, views
from railwright.fabric.policy import model

_AT_ONCE = 16 * 1024  # characters, which take about ten milliseconds; policies are shorter
_SECONDS = 120.0  # enough for the longest text on a busy node; the last valid policy stays in force meanwhile
_LOG = logging.getLogger("railwright.cluster")

Result = model.Policy | policies.Rejected
T = TypeVar("T", views.ConfigMap, views.FabricPolicy)


class PolicyObject(Generic[T]):
    """A sink for the object that has the name of the policy. Others are ignored."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each change, and when the first list does not contain the object."""
        self.current: T | None = None
        self.is_read = False  # a first list has been applied
        self._changed = changed

    def replace(self, objects: Sequence[T]) -> None:
        """Apply the full list, which contains the object or not."""
        self._set(next((obj for obj in objects if obj.metadata.name == installed_names.POLICY), None))

    def upsert(self, obj: T) -> None:
        """Apply a new or changed object."""
        if obj.metadata.name == installed_names.POLICY:
            self._set(obj)

    def remove(self, obj: T) -> None:
        """Record the deletion of the object."""
        if obj.metadata.name == installed_names.POLICY:
            self._set(None)

    def _set(self, obj: T | None) -> None:
        self.current, self.is_read = obj, True
        self._changed()


class PolicyObjects:
    """The two objects that may hold the policy. The FabricPolicy decides alone while it exists, valid or not."""

    def __init__(self, store: policies.PolicyStore, *, is_resource_watched: bool = False) -> None:
        """With `is_resource_watched`, no policy is read before the first list of FabricPolicy objects."""
        self.config_map = PolicyObject[views.ConfigMap](self._apply_config_map)
        self.resource = PolicyObject[views.FabricPolicy](self._apply_resource)
        self.resource.is_read = not is_resource_watched
        self.resource_result: Result | None = None  # of reading the current resource; None until it is read
        self._store = store
        self._callbacks: list[Callable[[PolicyObjects], None]] = []
        self._turn = 0  # number of texts seen; a result counts only if its text is the newest
        self._resource_text: str | None = None  # offered last, if by the resource: changes of its status are no change
        self._reading: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()  # one text at a time: of the waiting texts only the newest is parsed

    @property
    def is_overridden(self) -> bool:
        """True if both objects exist, so that the ConfigMap has no effect."""
        return self.config_map.current is not None and self.has_resource

    @property
    def has_resource(self) -> bool:
        """True while the FabricPolicy exists, so that a ConfigMap has no effect."""
        return self.resource.current is not None

    @property
    def holder(self) -> str:
        """Kind and name of the object in force; "" if there is none."""
        current_object = self.resource.current or self.config_map.current
        kind = names.POLICY_KIND if self.has_resource else "ConfigMap"
        return "" if current_object is None else f"{kind} {current_object.metadata.name}"

    @property
    def created_at(self) -> str:
        """Creation of the object in force, RFC 3339; "" if unknown."""
        current_object = self.resource.current or self.config_map.current
        return "" if current_object is None else current_object.metadata.creation_timestamp or ""

    def subscribe(self, callback: Callable[["PolicyObjects"], None]) -> None:
        """Call `callback` after every change of one of the objects, and when the resource has been read."""
        self._callbacks.append(callback)

    def _apply_config_map(self) -> None:
        if self.resource.current is None and self.resource.is_read:
            self._offer_config_map()
        self._notify()

    def _apply_resource(self) -> None:
        resource = self.resource.current
        if resource is not None:
            text = manifests.write_document(resource)
            if text != self._resource_text:
                self._resource_text, self.resource_result = text, None
                self._offer(text, self._take_resource)
        elif self.config_map.is_read and (self._resource_text is not None or not self._turn):
            self._offer_config_map()  # once, although an absent resource is listed again every 30 s
        self._notify()

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback(self)

    def _offer_config_map(self) -> None:
        """Read the ConfigMap. One without the key is an empty policy, which is rejected."""
        self._resource_text = self.resource_result = None
        if self.config_map.current is None:
            self._turn += 1
            self._store.withdraw()
        else:
            self._offer((self.config_map.current.data or {}).get(names.POLICY_KEY, ""), self._store.take)

    def _take_resource(self, result: Result) -> None:
        self.resource_result = manifests.locate_in_spec(result)
        self._store.take(self.resource_result)
        self._notify()

    def _offer(self, text: str, take: Callable[[Result], None]) -> None:
        self._turn += 1
        if len(text) <= _AT_ONCE:
            take(policies.read(text))
            return
        reading = asyncio.get_running_loop().create_task(self._read(text, self._turn, take))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _read(self, text: str, turn: int, take: Callable[[Result], None]) -> None:
        async with self._one:
            if turn != self._turn:
                return
            result = await _read(text)
        if turn == self._turn:
            take(result)


async def _read(text: str) -> Result:
    try:
        return await policy_process.read(text, _SECONDS)
    except policy_process.ReaderError as error:  # the policy must take effect anyway
        _LOG.warning("policy read in this process, which slows reviews", extra={"fields": {"error": str(error)}})
        return await asyncio.to_thread(policies.read, text)
