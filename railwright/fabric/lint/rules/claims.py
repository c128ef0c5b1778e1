"""Rules about ResourceClaims and ResourceClaimTemplates that users wrote."""

import re
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec

from railwright.fabric.claims import objects
from railwright.fabric.lint import rule_types
from railwright.fabric.lint.rule_types import Severity, Violation, rule

KINDS = ("ResourceClaim", "ResourceClaimTemplate")
_ALWAYS_SET = frozenset({"dra.net/rdma"})  # on each device (dranet pkg/inventory/db.go, addRDMAAttributes)
_SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
# DeviceClasses of NICs in charts and clouds
_NIC_CLASSES = frozenset(
    {"dranet", "dranet.net", "mrdma.google.com", "netdev.google.com", "efa.networking.k8s.aws", _SRIOV}
)
_NIC_DRIVERS = (objects.DRANET, _SRIOV)
# attributes that a CEL expression names
_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*["']([^"'\\]+)["']\s*\]""")
_REFERENCE = re.compile(_DOMAIN.pattern + r"""(?:\s*\.\s*|\s*\[\s*["'])([A-Za-z_]\w*)""")
_GUARD = re.compile(r"has\(\s*" + _REFERENCE.pattern + r"\s*\)")
_MEMBER = re.compile(r"""["']([A-Za-z_]\w*)["']\s+in\s+""" + _DOMAIN.pattern)
Path = tuple[str | int, ...]


class ClaimContext(msgspec.Struct, frozen=True):
    """Input of the rules about claims: spec.devices of a ResourceClaim or ResourceClaimTemplate."""

    devices: objects.DeviceClaim
    is_template: bool = True

    def list_alternatives(self) -> Iterator[tuple[str, objects.ExactDeviceRequest, Path]]:
        """Yield (name of the request, alternative, path below `devices`) for each alternative of each request."""
        for index, request in enumerate(self.devices.requests):
            if request.exactly is not None:
                yield request.name, request.exactly, ("requests", index, "exactly")
            for position, kind in enumerate(request.first_available or ()):
                yield request.name, kind, ("requests", index, "firstAvailable", position)


def requests_nic(kind: objects.ExactDeviceRequest) -> bool:
    """True if a request is for NICs: its DeviceClass is one of NICs, or its selectors name a driver of NICs."""
    text = " ".join(kind.expressions)
    return kind.device_class_name in _NIC_CLASSES or any(
        f'attributes["{name}"]' in text or f'driver == "{name}"' in text for name in _NIC_DRIVERS
    )


def list_attribute_names(expression: str) -> tuple[str, ...]:
    """Return the attributes that an expression names, as DOMAIN/NAME.

    CEL has `device.attributes["DOMAIN"].NAME` and `device.attributes["DOMAIN"]["NAME"]`.
    """
    matches = _REFERENCE.findall(expression)
    return tuple(dict.fromkeys(f"{domain}/{name}" for field, domain, name in matches if field == "attributes"))


def list_unguarded_attributes(expression: str) -> tuple[str, ...]:
    """Return the attributes, as DOMAIN/NAME, that an expression reads and never tests with has() or `in`.

    An attribute that is optional in the expression (`.?NAME`) is not among them.
    """
    guarded = {f"{domain}/{name}" for _, domain, name in _GUARD.findall(expression)}
    guarded |= {f"{domain}/{name}" for name, _, domain in _MEMBER.findall(expression)}
    return tuple(name for name in list_attribute_names(expression) if name not in guarded)


_Violations = Iterator[Violation]


def check_claim(claim: ClaimContext) -> tuple[tuple[rule_types.Finding, Path], ...]:
    """Return the findings about a claim, sorted by code, each with its path below `devices`."""
    pairs = ((rule, violation) for rule in RULES for violation in rule.check(claim))
    return tuple(dict.fromkeys((rule.build_finding(violation.message), violation.path) for rule, violation in pairs))


_SHARED_BY_PAIR = "pcieRoot"  # of a switch with one NIC or few; other attributes are meant for larger groups


@rule("C01", Severity.WARNING)
def check_pair_constraints(claim: ClaimContext) -> _Violations:
    """One constraint over several GPUs and NICs.

    A constraint holds for all devices of its requests together. With two GPUs and two NICs it asks that all four share
    one PCIe root, which most nodes do not have, so that the pod stays Pending. Write one request for each device,
    and one constraint for each pair. Attributes of larger groups are not reported, such as those of AWS Neuron's device
    groups.

    Source: kubernetes-sigs/dranet examples/demo_nvidia_dranet/resourceclaims.yaml;
    k8snetworkplumbingwg/dra-driver-sriov demo/resource-alignment/resource-alignment.yaml.
    """
    for index, constraint in enumerate(claim.devices.constraints):
        covered = {name.split("/")[0] for name in constraint.requests or ()}  # none: all requests
        counts: Counter[str] = Counter()
        for request in claim.devices.requests:
            for kind in request.alternatives[:1] if not covered or request.name in covered else ():  # tried first
                counts[kind.device_class_name] += kind.count
        several = [f"{count} devices of {name}" for name, count in counts.items() if count > 1]
        if constraint.match_attribute.rpartition("/")[2] == _SHARED_BY_PAIR and len(several) > 1:
            yield Violation(
                f"one constraint asks that {' and '.join(several)} share one value of {constraint.match_attribute}, "
                "which most nodes cannot provide; write one request for each device, and one constraint for each pair",
                path=("constraints", index),
            )


@rule("C02", Severity.WARNING)
def check_attribute_guards(claim: ClaimContext) -> _Violations:
    """An attribute is read without has().

    Attributes are optional. Reading one that a device lacks is an error of CEL, and kube-scheduler then schedules the
    pod on no node, even if other nodes have the device. A DeviceClass that excludes such devices hides the mistake. Not
    reported: dra.net/rdma, which every device of dranet has.

    Source: kubernetes-sigs/dranet examples/azure_aks_examples/gb300/resource-claim-template.yaml,
    examples/oci_oke_examples/BM.GPU.GB200-v3.4/resource-claim-template.yaml.
    """
    for request, kind, path in claim.list_alternatives():
        for expression in kind.expressions:
            for attribute in list_unguarded_attributes(expression):
                if attribute in _ALWAYS_SET:
                    continue
                domain, _, name = attribute.rpartition("/")
                yield Violation(
                    f"request {request} reads {attribute} without has(): if a device of the class lacks it, "
                    f'the pod is not scheduled; begin the expression with has(device.attributes["{domain}"].{name}) &&',
                    path=path,
                )


_ONE_POD_ATTRIBUTES = ("pciBusID", "numaNode")  # attributes of fixed devices: a second pod on the node cannot get them


@rule("C03", Severity.WARNING)
def check_fixed_devices(claim: ClaimContext) -> _Violations:
    """A template names the PCI address or NUMA node of its devices.

    Each claim of the template then asks for the same devices of a node, so that few pods fit on it while its other
    devices are idle. Authors do this on nodes where a GPU and its NIC have no pcieRoot in common; pair them by another
    attribute there.

    Source: kubernetes-sigs/dranet examples/azure_aks_examples/gb300/resource-claim-template.yaml.
    """
    for request, attribute, path in _list_selecting_attributes(claim):
        if claim.is_template and attribute.rpartition("/")[2] in _ONE_POD_ATTRIBUTES:
            yield Violation(
                f"request {request} selects devices by {attribute}, so a node holds only one pod of this template, "
                "even if its other devices are free; pair GPUs and NICs by matchAttribute, or let railwright write the "
                "claims",
                path=path,
            )


@rule("C04", Severity.WARNING)
def check_withdrawn_attributes(claim: ClaimContext) -> _Violations:
    """A device is selected by its interface or address.

    dranet reads these attributes from the interface of the host. While a pod holds the device, its interface is in the
    pod, and its slice lacks these attributes. Select devices by an attribute that is never withdrawn.

    Source: kubernetes-sigs/dranet examples/oke-bm-gpu-gb200-rocev2-dranet/resource-claim-template.yaml (ifName),
    openshift-psap/dra-rail-admission-webhook (ipv4).
    """
    for request, attribute, path in _list_selecting_attributes(claim):
        if attribute in objects.WITHDRAWN:
            yield Violation(
                f"request {request} selects devices by {attribute}, which dranet withdraws while a pod holds the "
                "device, and which may differ by node; use dra.net/rdmaDevice or dra.net/pciAddress",
                path=path,
            )


def _list_selecting_attributes(claim: ClaimContext) -> Iterator[tuple[str, str, Path]]:
    """Yield (name of the request, attribute, path below `devices`) once for each attribute in its selectors."""
    for request, kind, path in claim.list_alternatives():
        yield from ((request, attribute, path) for attribute in dict.fromkeys(_list_selector_attributes(kind)))


def _list_selector_attributes(kind: objects.ExactDeviceRequest) -> list[str]:
    return [name for expression in kind.expressions for name in list_attribute_names(expression)]


# Devices of a node: a pod that requests as many has all rails (GKE A3 Ultra, A4 and A4X Max; A4X has 4).
_DEVICES_PER_NODE = {"mrdma.google.com": 8}
_CONNECTED = frozenset({"efa.networking.k8s.aws"})  # classes whose devices all reach each other
# Attributes by which a template can name a rail, or the group of rails that each pod gets
_IDENTITIES = frozenset(
    {"rdmaDevice", "pciAddress", "pciBusID", "pcieRoot", "ifName", "resourceName", "PFName", "pfPciAddress", "deviceID"}
    | {"name", "numaNode"}
)


@rule("C05", Severity.WARNING)
def check_rail_selection(claim: ClaimContext) -> _Violations:
    """A template does not name the rails of its NICs.

    The scheduler takes the first devices that fit. Which these are depends on what other pods hold, on the order of
    devices in slices, and on whether the pod is the first of its node. The pods of a gang then have different rails. It
    does not matter if a pod takes all rails of its node, or if all rails reach each other, as devices of EFA do.

    Source: ai-dynamo/dynamo pull request 13596; kubernetes-sigs/dranet
    examples/aws_eks_examples/gpu-efa/resource-claim-template.yaml.
    """
    for request, kind, path in claim.list_alternatives():
        # It does not matter which devices a pod gets that takes all of its node, or where all reach each other.
        takes_all = kind.allocation_mode == "All" or kind.count >= _DEVICES_PER_NODE.get(
            kind.device_class_name, sys.maxsize
        )
        if not claim.is_template or not requests_nic(kind) or takes_all or kind.device_class_name in _CONNECTED:
            continue
        if not any(name.rpartition("/")[2] in _IDENTITIES for name in _list_selector_attributes(kind)):
            yield Violation(
                f"request {request} names no rail: pods of one gang get different rails, which cannot reach each "
                "other where rails are separate networks; select one rail for each request",
                path=path,
            )


RULES = rule_types.list_rules(sys.modules[__name__])
