"""Rules about ResourceClaims and ResourceClaimTemplates that users wrote, and about pods that refer to them."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.claims import claim_templates, drivers, objects, selectors
from railwright.fabric.lint import rule_types

KINDS = ("ResourceClaim", "ResourceClaimTemplate")
GPU_DRIVER = "gpu.nvidia.com"
# DeviceClasses of drivers' charts and clouds, by name, and their driver
_CLASS_DRIVERS: Mapping[str, str] = {
    "dranet": drivers.DRANET.name,
    "dranet.net": drivers.DRANET.name,
    "mrdma.google.com": drivers.DRANET.name,
    "netdev.google.com": drivers.DRANET.name,
    "efa.networking.k8s.aws": drivers.DRANET.name,
    drivers.SRIOV.name: drivers.SRIOV.name,
    GPU_DRIVER: GPU_DRIVER,
    "mig.nvidia.com": GPU_DRIVER,
}
Path = tuple[str | int, ...]


class ClaimedDevices(objects.DeviceClaim, frozen=True):
    """devices of the spec of a ResourceClaim or ResourceClaimTemplate, with the configuration for drivers."""

    config_or_none: list[objects.DeviceConfiguration] | None = msgspec.field(default=None, name="config")

    @property
    def config(self) -> Sequence[objects.DeviceConfiguration]:
        """Configurations; empty if absent."""
        return self.config_or_none or ()


class ClaimContext(msgspec.Struct, frozen=True):
    """A claim, or a template of claims."""

    title: str  # "ResourceClaimTemplate prod/rdma"
    devices: ClaimedDevices
    is_template: bool = True

    def list_kinds(self) -> Iterator[tuple[int, objects.DeviceRequest, objects.ExactDeviceRequest, Path]]:
        """Yield each kind of device: index and view of its request, the kind, and its path below `devices`."""
        for index, request in enumerate(self.devices.requests):
            if request.exactly is not None:
                yield index, request, request.exactly, ("requests", index, "exactly")
            for position, kind in enumerate(request.first_available or ()):
                yield index, request, kind, ("requests", index, "firstAvailable", position)

    def list_covered(self, names: Sequence[str] | None) -> list[objects.DeviceRequest]:
        """Return the requests that a constraint or configuration covers: those it names, otherwise all."""
        if not names:
            return list(self.devices.requests)
        return [request for request in self.devices.requests if request.name in {name.split("/")[0] for name in names}]


class PodClaimContext(msgspec.Struct, frozen=True):
    """A pod or pod template, and the templates of claims in the same files."""

    title: str  # "Job prod/llm"
    spec: views.PodSpec
    templates: Mapping[str, ClaimedDevices] = {}  # by name
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)

    def list_containers(self) -> Iterator[tuple[views.Container, Path]]:
        """Yield the containers, those of initialization first, each with its path below the pod's spec."""
        for index, init_container in enumerate(self.spec.init_containers or ()):
            yield init_container, ("initContainers", index)
        for index, container in enumerate(self.spec.containers):
            yield container, ("containers", index)

    def list_used(self) -> set[str]:
        """Return the entries of spec.resourceClaims that containers use."""
        return {
            claim.name
            for container, _ in self.list_containers()
            if container.resources is not None
            for claim in container.resources.claims
        }


class ClaimViolation(msgspec.Struct, frozen=True):
    """A violation. `path` is below `devices` of a claim, or below the spec of a pod."""

    message: str
    path: Path = ()


class ClaimRule(msgspec.Struct, frozen=True):
    """A rule about claims, or about the claims of a pod."""

    code: str
    check_claim: Callable[[ClaimContext], Iterable[ClaimViolation]] = lambda _claim: ()
    check_pod: Callable[[PodClaimContext], Iterable[ClaimViolation]] = lambda _pod: ()


def find_driver(kind: objects.ExactDeviceRequest) -> str | None:
    """Return the driver of a kind of device: by its DeviceClass, or by the attributes that it reads. None: unknown."""
    driver = _CLASS_DRIVERS.get(kind.device_class_name)
    if driver is not None:
        return driver
    text = " ".join(kind.expressions)
    for name in (drivers.DRANET.name, drivers.SRIOV.name, GPU_DRIVER):
        if f'attributes["{name}"]' in text or f'driver == "{name}"' in text:
            return name
    return None


def is_nic(kind: objects.ExactDeviceRequest) -> bool:
    """True if the devices are known to be NICs."""
    return find_driver(kind) in (drivers.DRANET.name, drivers.SRIOV.name)


def has_gpus(devices: ClaimedDevices) -> bool:
    """True if a request is known to be for GPUs. Of alternatives, the first one counts."""
    kinds = (request.preferred for request in devices.requests)
    return any(kind is not None and find_driver(kind) == GPU_DRIVER for kind in kinds)


def read_devices(tree: Mapping[str, Any]) -> ClaimedDevices:
    """Return `devices` of a spec. Raises msgspec.ValidationError."""
    return msgspec.convert(tree, ClaimedDevices)


Located = tuple[rule_types.Finding, Path]
_Violations = Iterator[ClaimViolation]
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}
_OF_ONE_POD = ("pciBusID", "numaNode")  # attributes that only one pod of a node may select by
_SHARED_BY_PAIR = "pcieRoot"  # a switch with one NIC, or few; other attributes are of larger groups by intention
# Devices of a node: a pod that requests as many has all rails (GKE A3 Ultra, A4 and A4X Max; A4X has 4).
_ALL_OF_NODE = {"mrdma.google.com": 8}
_CONNECTED = frozenset({"efa.networking.k8s.aws"})  # classes whose devices all reach each other
# Attributes by which a template can name a rail, or the group of rails that each pod gets
_IDENTITIES = frozenset(
    {"rdmaDevice", "pciAddress", "pciBusID", "pcieRoot", "ifName", "resourceName", "PFName", "pfPciAddress", "deviceID"}
    | {"name", "numaNode"}
)


def check(claim: ClaimContext) -> tuple[Located, ...]:
    """Return the findings about a claim, each with its path below `devices`, sorted by severity, then by code."""
    return _sort(located for rule in RULES for located in _locate(rule, rule.check_claim(claim), "devices"))


def check_pod(pod: PodClaimContext) -> tuple[Located, ...]:
    """Return the findings about the claims of a pod, each with its path below the pod's spec, ordered as by `check`."""
    if not pod.spec.resource_claims:
        return ()
    return _sort(located for rule in RULES for located in _locate(rule, rule.check_pod(pod), "spec"))


def _sort(findings: Iterable[Located]) -> tuple[Located, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda item: (_ORDER[item[0].severity], item[0].code)))


def _locate(rule: ClaimRule, violations: Iterable[ClaimViolation], root: str) -> Iterator[Located]:
    for violation in violations:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in violation.path)
        yield rule_types.build_finding(rule.code, violation.message, where=f"{root}{where}"), violation.path


def _check_pairs(claim: ClaimContext) -> _Violations:
    for index, constraint in enumerate(claim.devices.constraints):
        counts: Counter[str] = Counter()
        for request in claim.list_covered(constraint.requests):
            if request.preferred is not None:
                counts[request.preferred.device_class_name] += request.preferred.count
        several = [f"{count} devices of {name}" for name, count in counts.items() if count > 1]
        if constraint.match_attribute.rpartition("/")[2] == _SHARED_BY_PAIR and len(several) > 1:
            yield ClaimViolation(
                f"one constraint asks that {' and '.join(several)} share one value of {constraint.match_attribute}; "
                "write one request for each device, and one constraint for each pair",
                ("constraints", index),
            )


def _check_test(claim: ClaimContext) -> _Violations:
    for _, request, kind, path in claim.list_kinds():
        for expression in kind.expressions:
            for attribute in selectors.list_unguarded(expression):
                if attribute in drivers.ALWAYS_SET:
                    continue
                domain, _, name = attribute.rpartition("/")
                yield ClaimViolation(
                    f"request {request.name} reads {attribute} without has(): if a device of the class lacks it, "
                    f'the pod is not scheduled; begin with has(device.attributes["{domain}"].{name}) &&',
                    path,
                )


def _check_devices_of_one_pod(claim: ClaimContext) -> _Violations:
    for request, attribute, path in _list_attributes(claim):
        if claim.is_template and attribute.rpartition("/")[2] in _OF_ONE_POD:
            yield ClaimViolation(
                f"request {request} names devices by {attribute}, so that a second pod of this template finds "
                "them taken on each node; pair GPUs and NICs by a constraint, or let railwright write the claims",
                path,
            )


def _check_withdrawn(claim: ClaimContext) -> _Violations:
    for request, attribute, path in _list_attributes(claim):
        if attribute in drivers.WITHDRAWN:
            yield ClaimViolation(
                f"request {request} selects by {attribute}, which dranet withdraws while a pod holds the "
                "device, and which may differ by node; use dra.net/rdmaDevice or dra.net/pciAddress",
                path,
            )


def _list_attributes(claim: ClaimContext) -> Iterator[tuple[str, str, Path]]:
    """Yield each attribute that a kind of device is selected by, once, with the names of its request and its path."""
    for _, request, kind, path in claim.list_kinds():
        attributes = [name for expression in kind.expressions for name in selectors.list_references(expression)]
        yield from ((request.name, attribute, path) for attribute in dict.fromkeys(attributes))


def _check_unnamed(claim: ClaimContext) -> _Violations:
    for _, request, kind, path in claim.list_kinds():
        if not claim.is_template or not is_nic(kind) or _takes_any_rails(kind):
            continue
        attributes = [name for expression in kind.expressions for name in selectors.list_references(expression)]
        if not any(name.rpartition("/")[2] in _IDENTITIES for name in attributes):
            yield ClaimViolation(
                f"request {request.name} names no rail: pods of one gang get different rails, which cannot reach each "
                "other where rails are separate networks; select one rail for each request",
                path,
            )


def _takes_any_rails(kind: objects.ExactDeviceRequest) -> bool:
    """True if it does not matter which devices a pod gets: it takes all of its node, or all reach each other."""
    takes_all = kind.allocation_mode == "All" or kind.count >= _ALL_OF_NODE.get(kind.device_class_name, sys.maxsize)
    return takes_all or kind.device_class_name in _CONNECTED


def _check_total(claim: ClaimContext) -> _Violations:
    kinds = [request.preferred for request in claim.devices.requests]
    total = sum(kind.count for kind in kinds if kind is not None and kind.allocation_mode != "All")
    if total > drivers.MAX_DEVICES:
        yield ClaimViolation(
            f"requests {total} devices, but a claim has at most {drivers.MAX_DEVICES}: the API server admits it, and "
            "its pods stay Pending; split it into claims along pairs of GPUs and NICs",
            ("requests",),
        )


def _check_pair_attribute(claim: ClaimContext) -> _Violations:
    for index, constraint in enumerate(claim.devices.constraints):
        kinds = [kind for request in claim.list_covered(constraint.requests) if (kind := request.preferred)]
        has_gpu = any(find_driver(kind) == GPU_DRIVER for kind in kinds)
        has_nic = any(is_nic(kind) for kind in kinds)
        if has_gpu and has_nic and constraint.match_attribute.rpartition("/")[0] not in {"", "resource.kubernetes.io"}:
            yield ClaimViolation(
                f"{constraint.match_attribute} is an attribute of one driver: devices of the other lack it, so that no "
                "pair has it in common and the pod stays Pending; use resource.kubernetes.io/pcieRoot or numaNode",
                ("constraints", index, "matchAttribute"),
            )


def _check_topology_hints(claim: ClaimContext) -> _Violations:
    if has_gpus(claim.devices):
        yield ClaimViolation(
            "kubelet gets no topology hints for claims: CPUs and memory of the pod may be on another NUMA node than "
            "its GPUs; bind the processes to CPUs by the GPU's NUMA node in the pod",
            ("requests",),
        )


def _check_configuration(claim: ClaimContext) -> _Violations:
    for index, config in enumerate(claim.devices.config):
        if config.opaque is None:
            continue
        for request in claim.list_covered(config.requests) if config.requests else ():
            driver = find_driver(request.preferred) if request.preferred else None
            if driver is not None and driver != config.opaque.driver:
                yield ClaimViolation(
                    f"the configuration for request {request.name} is for driver {config.opaque.driver}, but its "
                    f"devices are of {driver}, which ignores it; write {driver} and its form of parameters",
                    ("config", index, "opaque", "driver"),
                )


def _check_use(pod: PodClaimContext) -> _Violations:
    used = pod.list_used()
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        devices = pod.templates.get(entry.resource_claim_template_name or "")
        if entry.name not in used and devices is not None and has_gpus(devices):
            yield ClaimViolation(
                f"no container uses the claim {entry.name}: its GPUs are allocated and stay idle; add "
                f"resources.claims: [{{name: {entry.name}}}] to the container, or remove the claim",
                ("resourceClaims", index),
            )


def _check_template(pod: PodClaimContext) -> _Violations:
    """Report nothing if the files have no template: these may be in the cluster."""
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        template = entry.resource_claim_template_name
        if not template or template in pod.templates or not pod.templates or claim_templates.is_own_name(template):
            continue
        yield ClaimViolation(
            f"the files have no ResourceClaimTemplate {template}, but {', '.join(sorted(pod.templates)[:3])}: unless "
            "the namespace has it, the pod stays Pending; correct the name, or add the template",
            ("resourceClaims", index, "resourceClaimTemplateName"),
        )


def _check_both_gpus(pod: PodClaimContext) -> _Violations:
    templates = {entry.name: entry.resource_claim_template_name for entry in pod.spec.resource_claims or ()}
    for container, path in pod.list_containers():
        if container.resources is None:
            continue
        resource = _find_resource(container.resources, pod.accelerators)
        for claim in container.resources.claims:
            template = templates.get(claim.name, "")
            devices = pod.templates.get(template)
            if resource and devices is not None and has_gpus(devices):
                yield ClaimViolation(
                    f"container {container.name} requests {resource} and gets GPUs by the template {template} of claim "
                    f"{claim.name}: the pod takes both; remove {resource}, or the GPUs of the template",
                    (*path, "resources"),
                )


def _find_resource(requirements: views.ResourceRequirements, accelerators: tuple[str, ...]) -> str:
    """Return the accelerator that a container requests; "" if it requests none, or "0"."""
    amounts = {**requirements.requests, **requirements.limits}
    return next((name for name in accelerators if str(amounts.get(name, "0")) != "0"), "")


RULES = (
    ClaimRule("C01", check_claim=_check_pairs),
    ClaimRule("C02", check_claim=_check_test),
    ClaimRule("C03", check_claim=_check_devices_of_one_pod),
    ClaimRule("C04", check_claim=_check_withdrawn),
    ClaimRule("C05", check_claim=_check_unnamed),
    ClaimRule("C06", check_claim=_check_total),
    ClaimRule("C07", check_claim=_check_pair_attribute),
    ClaimRule("C08", check_claim=_check_topology_hints),
    ClaimRule("C09", check_claim=_check_configuration),
    ClaimRule("C10", check_pod=_check_use),
    ClaimRule("C11", check_pod=_check_template),
    ClaimRule("C12", check_pod=_check_both_gpus),
)
