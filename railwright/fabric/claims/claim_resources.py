"""Names the devices of claims as a policy does: by rail, and as accelerators.

A device that matches a rail counts under the rail's resource, so that placement treats it as one of a device plugin.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache
from railwright.fabric.claims import comparisons, evaluations, objects, slices

_MAX_EXAMPLES = 4096  # kinds of devices: a node type has tens
_MAX_UNREAD = 256


class ClaimResource(msgspec.Struct, frozen=True):
    """A resource that stands for devices of a DeviceClass."""

    name: str
    device_class: str
    expressions: tuple[str, ...] = ()  # which devices of the class; all must be true
    fabric: str = ""  # whose rail it is; "" for accelerators


class ClaimResources:
    """The resources of the policy in force.

    The rails that a request can select are found by examples: one device for each driver, device name and resources.
    """

    def __init__(self, results: evaluations.Evaluations) -> None:
        self._evaluations = results
        self.unread: set[tuple[str, tuple[str, ...]]] = set()  # class and expressions of requests that are not plain
        self.version = 0  # incremented when requests may be for other resources
        self._resources: tuple[ClaimResource, ...] = ()
        self._by_class: dict[str, list[ClaimResource]] = {}
        self._examples: dict[tuple[str, str, tuple[str, ...]], slices.OfferedDevice] = {}
        self._names_by_request: bounded_cache.BoundedCache[tuple[str, tuple[str, ...]], tuple[str, ...]]
        self._names_by_request = bounded_cache.BoundedCache(_MAX_EXAMPLES)

    def replace(self, resources: Sequence[ClaimResource]) -> bool:
        """Replace all resources. Returns False if they are the same."""
        if tuple(resources) == self._resources:
            return False
        self._resources = tuple(resources)
        self._by_class = {}
        for resource in self._resources:
            self._by_class.setdefault(resource.device_class, []).append(resource)
        self.forget_examples()
        return True

    def list_expressions(self) -> Sequence[str]:
        """Return all CEL expressions."""
        return [expression for resource in self._resources for expression in resource.expressions]

    def match(self, device_class: str, device: slices.OfferedDevice) -> Mapping[str, evaluations.Result]:
        """Return for each resource of a class whether a device of this class counts under it."""
        return {
            resource.name: self._evaluations.match_all(resource.expressions, device)
            for resource in self._by_class.get(device_class, ())
        }

    def add_example(self, device: slices.OfferedDevice, names: tuple[str, ...]) -> None:
        """Remember one device of each kind."""
        if not self._resources:
            return
        key = (device.id.driver, device.id.device, names)
        if key not in self._examples and len(self._examples) < _MAX_EXAMPLES:
            self._examples[key] = device
            self._names_by_request.clear()
            self.version += 1

    def forget_examples(self) -> None:
        """Forget the devices: the names under which they count have changed."""
        self._examples.clear()
        self._names_by_request.clear()
        self.unread.clear()
        self.version += 1

    def find_request_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resources that a request of a claim is for.

        A request is for a rail if it has the rail's expressions, or if its own can select devices of one rail only.
        """
        if request.device_class_name not in self._by_class:
            return ()
        key = (request.device_class_name, request.expressions)
        names = self._names_by_request.get(key)
        if names is None:
            names = self._find_request_names(*key)
            self._names_by_request.add(key, names)
        return names

    def _find_request_names(self, device_class: str, expressions: tuple[str, ...]) -> tuple[str, ...]:
        candidates = self._by_class[device_class]
        named = [resource for resource in candidates if set(resource.expressions) <= set(expressions)]
        selectable = self._find_selectable(device_class, expressions)
        if selectable is None:
            if not named and len(self.unread) < _MAX_UNREAD:
                self.unread.add((device_class, expressions))
            return tuple(resource.name for resource in named)
        others: dict[str, list[str]] = {resource.fabric: [] for resource in candidates}
        for resource in candidates:
            if resource.name in selectable:
                others[resource.fabric].append(resource.name)
        for resource in named:  # the expressions of the rail itself leave no choice
            others.pop(resource.fabric, None)
        return tuple([resource.name for resource in named] + [names[0] for names in others.values() if len(names) == 1])

    def _find_selectable(self, device_class: str, expressions: tuple[str, ...]) -> set[str] | None:
        """Return the resources of the devices that a request can select; None if it is not known which it can.

        Users write these expressions, so only plain ones are evaluated, and a limited number of characters.
        """
        conditions = [comparisons.parse(expression) for expression in expressions]
        if sum(map(len, expressions)) > comparisons.MAX_LENGTH or None in conditions:
            return None
        selectable: set[str] = set()
        for (driver, _, names), example in self._examples.items():
            if objects.IMPLICIT_RESOURCE_PREFIX + device_class not in names:
                continue
            match = comparisons.combine(
                [evaluate(example.device, driver) for evaluate in conditions if evaluate is not None]
            )
            if match is comparisons.Match.UNKNOWN:
                return None
            selectable.update(names if match is comparisons.Match.YES else ())
        return selectable
