"""Finds the resource names under which a device counts, from the device classes and the policy.

A device counts under each name by which a pod can request it as an extended resource: that of its DeviceClass
(`spec.extendedResourceName`), and `deviceclass.resource.kubernetes.io/CLASS`. It also counts under the resources by
which the policy names it: by rail, and as accelerators.

A device counts under a name also if it is unknown whether it matches, so that no node is refused where kube-scheduler's
allocator may find devices.

Expressions that railwright cannot evaluate as Kubernetes does are listed with their objects, for reports about them.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import bounded_cache, names, views
from railwright.fabric.claims import comparisons, evaluations, objects, selectors, slices

_MAX_DESCRIPTIONS = 65536  # the devices of equal nodes share names; each node type has tens of devices
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
        self._names_by_request = bounded_cache.BoundedCache[tuple[str, tuple[str, ...]], tuple[str, ...]](_MAX_EXAMPLES)

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
        return self._names_by_request.find(key, lambda: self._find_request_names(*key))

    def _find_request_names(self, device_class: str, expressions: tuple[str, ...]) -> tuple[str, ...]:
        candidates = self._by_class[device_class]
        named = [resource for resource in candidates if set(resource.expressions) <= set(expressions)]
        selectable = self._find_selectable(device_class, expressions)
        if selectable is None:
            if not named and len(self.unread) < _MAX_UNREAD:
                self.unread.add((device_class, expressions))
            return tuple(resource.name for resource in named)
        # Several fabrics may name the same devices, so each is asked on its own: a request whose selectors match only
        # one rail of a fabric is for this rail, and one that matches several is for none of them.
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
        for (driver, _, own_names), example in self._examples.items():
            if objects.IMPLICIT_RESOURCE_PREFIX + device_class not in own_names:
                continue
            match = comparisons.combine(
                [evaluate(example.device, driver) for evaluate in conditions if evaluate is not None]
            )
            if match is comparisons.Match.UNKNOWN:
                return None
            selectable.update(own_names if match is comparisons.Match.YES else ())
        return selectable


class ResourceNames:
    """Device classes, and the resource names of the devices that match them."""

    def __init__(self) -> None:
        self._classes: dict[str, objects.DeviceClass] = {}
        self.names_by_class: Mapping[str, tuple[str, ...]] = {}  # extended resources of each class
        self._names_by_device: dict[slices.DeviceId, tuple[str, ...]] = {}  # computed on demand
        self._names_by_values = bounded_cache.BoundedCache[tuple[object, ...], tuple[str, ...]](_MAX_DESCRIPTIONS)
        self._references: tuple[selectors.Reference, ...] | None = ()  # what all expressions read; None: anything
        self._undecided: set[slices.DeviceId] = set()  # devices whose names depend on questions without an answer
        self.evaluations = evaluations.Evaluations()
        self._claim_resources = ClaimResources(self.evaluations)
        self.classes_version = 0  # incremented when devices may have other names

    @property
    def version(self) -> int:
        """Incremented when requests of claims may count under other names."""
        return self._claim_resources.version

    def find_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the resource names under which a device counts."""
        names = self._names_by_device.get(device.id)
        if names is None:
            names, is_decided = self._compute_names(device)
            self._names_by_device[device.id] = names
            if is_decided:
                self._claim_resources.add_example(device, names)
            else:
                self._undecided.add(device.id)
        return names

    def read_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the names of a device without storing them for it."""
        return self._compute_names(device)[0]

    def _compute_names(self, device: slices.OfferedDevice) -> tuple[tuple[str, ...], bool]:
        """Return the names of a device, and whether they are final. Equal inputs have equal names."""
        if self._references is None:
            return self._match(device)
        inputs = evaluations.read_inputs(device, self._references)
        known = self._names_by_values.get(inputs)
        if known is not None:
            return known, True
        names, is_decided = self._match(device)
        if is_decided:
            self._names_by_values.add(inputs, names)
        return names, is_decided

    def _match(self, device: slices.OfferedDevice) -> tuple[tuple[str, ...], bool]:
        names: dict[str, None] = {}
        results: list[evaluations.Result] = []
        for name, device_class in self._classes.items():
            result = self.evaluations.match_all(device_class.expressions, device)
            results.append(result)
            if result.may_match:
                names.update(dict.fromkeys(self.names_by_class[name]))
                by_resource = self._claim_resources.match(name, device)
                results += by_resource.values()
                names.update(dict.fromkeys(resource for resource, match in by_resource.items() if match.may_match))
        return tuple(names), not any(result.is_pending for result in results)

    def answer(self, results: Mapping[int, evaluations.Result]) -> Sequence[slices.DeviceId]:
        """Record answers to questions. Returns the devices whose names may change; these are forgotten."""
        self.evaluations.answer(results)
        devices = list(self._undecided)
        self.forget(devices)
        self.classes_version += 1
        return devices

    @property
    def unread_requests(self) -> AbstractSet[tuple[str, tuple[str, ...]]]:
        """Class and expressions of requests of which it is not known for which rails they are."""
        return self._claim_resources.unread

    def list_classes_with(self, expression: str) -> Sequence[objects.DeviceClass]:
        """Return the device classes that have an expression."""
        return [known for known in self._classes.values() if expression in known.expressions]

    def find_request_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resource names that a request of a claim is for; none if there is no such class."""
        names = self.names_by_class.get(request.device_class_name, ())
        rails = self.find_policy_names(request)
        return tuple(dict.fromkeys((*names, *rails))) if rails else names

    def find_policy_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resources of the policy that a request of a claim is for."""
        if request.device_class_name not in self.names_by_class:
            return ()
        return self._claim_resources.find_request_names(request)

    def refresh(self, device: slices.OfferedDevice) -> None:
        """Read the names of a changed device that a claim holds. Names whose attributes were withdrawn stay."""
        known = self._names_by_device.get(device.id)
        if known is not None and not set(self.read_names(device)) <= set(known):
            del self._names_by_device[device.id]

    def forget(self, devices: Iterable[slices.DeviceId]) -> None:
        """Forget the names of devices that changed or are gone."""
        for device in devices:
            self._names_by_device.pop(device, None)
            self._undecided.discard(device)

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
        self._forget_all()
        return True

    def replace_claim_resources(self, resources: Sequence[ClaimResource]) -> bool:
        """Replace the resources of the policy. Returns False if they are the same."""
        if not self._claim_resources.replace(resources):
            return False
        self._forget_all()
        return True

    def _forget_all(self) -> None:
        self.classes_version += 1
        self._names_by_device.clear()
        self._names_by_values.clear()
        self._undecided.clear()
        self._claim_resources.forget_examples()
        of_classes = [expression for known in self._classes.values() for expression in known.expressions]
        expressions = [*of_classes, *self._claim_resources.list_expressions()]
        self._references = selectors.find_all_inputs(expressions)
        self.evaluations.retain(expressions)


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


DEVICE_CLASS, TEMPLATE, CLAIM = "DeviceClass", "ResourceClaimTemplate", "ResourceClaim"
POLICY = names.POLICY_KIND

_NOT_PLAIN = (
    "railwright evaluates expressions of users only if they compare attributes with constants, and if those of a "
    f"request have at most {comparisons.MAX_LENGTH} characters together"
)


class UnknownSelector(msgspec.Struct, frozen=True):
    """An expression of an object, and why it is unknown which devices match. `device` is an example."""

    kind: str
    metadata: views.ObjectMeta
    expression: str
    match: comparisons.Match
    cause: str
    device: str = ""


def find_unknown_selectors(
    known: ResourceNames,
    templates: Iterable[objects.ResourceClaimTemplate],
    claims: Iterable[objects.ResourceClaim],
) -> Sequence[UnknownSelector]:
    """Return one row for each object and expression: those of classes and policy first, then those of requests."""
    rows = [row for problem in known.evaluations.problems for row in _describe(problem, known)]
    if known.unread_requests:
        rows += [row for template in templates for row in _list_unread(TEMPLATE, template, known)]
        users = (claim for claim in claims if objects.POD_CLAIM_NAME not in claim.metadata.annotations)
        rows += [row for claim in users for row in _list_unread(CLAIM, claim, known)]
    return rows


def _describe(problem: evaluations.Problem, known: ResourceNames) -> Iterable[UnknownSelector]:
    classes = known.list_classes_with(problem.expression)
    owners = [(DEVICE_CLASS, device_class.metadata) for device_class in classes]
    for kind, metadata in owners or [(POLICY, views.ObjectMeta())]:
        yield UnknownSelector(kind, metadata, problem.expression, problem.match, problem.cause, problem.device)


def _list_unread(
    kind: str, owner: objects.ResourceClaimTemplate | objects.ResourceClaim, known: ResourceNames
) -> Iterable[UnknownSelector]:
    for request in owner.requests:
        exact = request.preferred
        if exact is not None and (exact.device_class_name, exact.expressions) in known.unread_requests:
            unread = next((text for text in exact.expressions if comparisons.parse(text) is None), exact.expressions[0])
            yield UnknownSelector(kind, owner.metadata, unread, comparisons.Match.UNKNOWN, _NOT_PLAIN)
