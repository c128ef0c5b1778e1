"""Finds the resource names under which a device counts, from the device classes and the policy.

A device counts under each name by which a pod can request it as an extended resource: that of its DeviceClass
(`spec.extendedResourceName`), and `deviceclass.resource.kubernetes.io/CLASS`. It also counts under the resources by
which the policy names it: by rail, and as accelerators.

A class or rail with an expression that is not plain counts nothing: neither its devices nor requests for it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric.claims import objects, selectors, slices


class ClaimResource(msgspec.Struct, frozen=True):
    """A resource that stands for devices of a DeviceClass."""

    name: str
    device_class: str
    expressions: tuple[str, ...] = ()  # which devices of the class; all must be true


class ResourceNames:
    """Device classes and the resources of the policy in force, and the resource names of the devices that match them.

    `version` is incremented when devices or requests may have other names.
    """

    def __init__(self) -> None:
        self._classes: dict[str, objects.DeviceClass] = {}
        self._resources: tuple[ClaimResource, ...] = ()
        self.names_by_class: Mapping[str, tuple[str, ...]] = {}  # extended resources of each class
        # what can be read of them: class -> what its devices have, and the policy's resources in it
        self._selections: dict[str, selectors.Selection] = {}
        self._resources_by_class: dict[str, list[tuple[str, selectors.Selection]]] = {}
        self._names_by_device: dict[slices.DeviceId, tuple[str, ...]] = {}  # computed on demand
        self.version = 0

    def find_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the resource names under which a device counts."""
        names = self._names_by_device.get(device.id)
        if names is None:
            names = self._names_by_device[device.id] = self.read_names(device)
        return names

    def read_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the names of a device without storing them for it."""
        names: dict[str, None] = {}
        for name, of_class in self._selections.items():
            if selectors.matches(of_class, device.device, device.id.driver):
                names.update(dict.fromkeys(self.names_by_class[name]))
                for resource, selection in self._resources_by_class.get(name, ()):
                    if selectors.matches(selection, device.device, device.id.driver):
                        names[resource] = None
        return tuple(names)

    def find_request_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resource names that a request of a claim is for; none if there is no such class."""
        if request.device_class_name not in self._selections:
            return ()
        return tuple(dict.fromkeys((*self.names_by_class[request.device_class_name], *self.find_policy_names(request))))

    def find_policy_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resources of the policy that a request of a claim is for: it can select no other devices."""
        candidates = self._resources_by_class.get(request.device_class_name, ())
        selection = selectors.read(request.expressions) if candidates else None
        if selection is None:
            return ()
        return tuple(name for name, of_resource in candidates if selectors.is_within(selection, of_resource))

    def refresh(self, device: slices.OfferedDevice) -> None:
        """Read the names of a changed device that a claim holds. Names whose attributes were withdrawn stay."""
        known = self._names_by_device.get(device.id)
        if known is not None and not set(self.read_names(device)) <= set(known):
            del self._names_by_device[device.id]

    def forget(self, devices: Iterable[slices.DeviceId]) -> None:
        """Forget the names of devices that changed or are gone."""
        for device in devices:
            self._names_by_device.pop(device, None)

    def upsert(self, device_class: objects.DeviceClass) -> bool:
        """Add or update a device class. Returns False if it was known."""
        name = device_class.metadata.name
        if self._classes.get(name) == device_class:
            return False
        return self.replace([*(known for known in self._classes.values() if known.metadata.name != name), device_class])

    def remove(self, device_class: objects.DeviceClass) -> bool:
        """Remove a device class. Returns True."""
        name = device_class.metadata.name
        return self.replace([known for known in self._classes.values() if known.metadata.name != name])

    def replace(self, classes: Sequence[objects.DeviceClass]) -> bool:
        """Replace all device classes. Returns True: devices may have other names."""
        self._classes = {device_class.metadata.name: device_class for device_class in classes}
        self.names_by_class = name_classes(classes)
        self._selections = {
            name: selection
            for name, device_class in self._classes.items()
            if (selection := selectors.read(device_class.expressions)) is not None
        }
        self._forget_all()
        return True

    def replace_claim_resources(self, resources: Sequence[ClaimResource]) -> bool:
        """Replace the resources of the policy. Returns False if they are the same."""
        if tuple(resources) == self._resources:
            return False
        self._resources, self._resources_by_class = tuple(resources), {}
        for resource in resources:
            if (selection := selectors.read(resource.expressions)) is not None:
                self._resources_by_class.setdefault(resource.device_class, []).append((resource.name, selection))
        self._forget_all()
        return True

    def _forget_all(self) -> None:
        self.version += 1
        self._names_by_device.clear()


def name_classes(classes: Iterable[objects.DeviceClass]) -> dict[str, tuple[str, ...]]:
    """Return the extended resources by which devices of each class can be requested.

    Of classes with one extended resource, the newest has it, and of equally old ones the first by name (KEP-5004).
    """
    by_age = sorted(classes, key=lambda device_class: device_class.metadata.name, reverse=True)
    by_age.sort(key=lambda device_class: device_class.metadata.creation_timestamp or "")
    owners = {device_class.spec.extended_resource_name: device_class.metadata.name for device_class in by_age}
    names: dict[str, tuple[str, ...]] = {}
    for device_class in by_age:
        name, explicit = device_class.metadata.name, device_class.spec.extended_resource_name
        owned = (explicit,) if explicit and owners[explicit] == name else ()
        names[name] = (*owned, objects.IMPLICIT_RESOURCE_PREFIX + name)
    return names
