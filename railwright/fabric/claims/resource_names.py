"""Finds the resource names under which a device counts, from the device classes.

A device counts under each name by which a pod can request it as an extended resource: that of its DeviceClass
(`spec.extendedResourceName`), and `deviceclass.resource.kubernetes.io/CLASS`.
"""

from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric.claims import objects, selectors, slices


class ResourceNames:
    """Device classes, and the resource names of the devices that match them."""

    def __init__(self) -> None:
        self._classes: dict[str, objects.DeviceClass] = {}
        self._names_by_class: dict[str, tuple[str, ...]] = {}
        self._names_by_device: dict[slices.DeviceId, tuple[str, ...]] = {}  # computed on demand

    def find_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the resource names under which a device counts."""
        names = self._names_by_device.get(device.id)
        if names is None:
            description = device.description
            names = self._names_by_device[device.id] = tuple(
                name
                for device_class in self._classes.values()
                if _matches(device_class.expressions, description)
                for name in self._names_by_class[device_class.metadata.name]
            )
        return names

    def get_class_names(self, device_class: str) -> tuple[str, ...]:
        """Return the resource names of the devices of a class; none if there is no such class."""
        return self._names_by_class.get(device_class, ())

    def forget(self, devices: Iterable[slices.DeviceId]) -> None:
        """Forget the names of devices that changed or are gone."""
        for device in devices:
            self._names_by_device.pop(device, None)

    def upsert(self, device_class: objects.DeviceClass) -> bool:
        """Add or update a device class. Returns False if it was known."""
        name = device_class.metadata.name
        if self._classes.get(name) == device_class:
            return False
        self.replace([*(known for known in self._classes.values() if known.metadata.name != name), device_class])
        return True

    def remove(self, device_class: objects.DeviceClass) -> None:
        """Remove a device class."""
        name = device_class.metadata.name
        self.replace([known for known in self._classes.values() if known.metadata.name != name])

    def replace(self, classes: Sequence[objects.DeviceClass]) -> None:
        """Replace all device classes."""
        self._classes = {device_class.metadata.name: device_class for device_class in classes}
        self._names_by_class = _name_classes(classes)
        self._names_by_device.clear()


def _name_classes(classes: Iterable[objects.DeviceClass]) -> dict[str, tuple[str, ...]]:
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


def _matches(expressions: Sequence[str], description: Mapping[str, object]) -> bool:
    """Return whether a device matches all expressions. It does not match one that fails, as in kube-scheduler."""
    try:
        return all(selectors.matches(expression, description) for expression in expressions)
    except selectors.SelectorError:
        return False
