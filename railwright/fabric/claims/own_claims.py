"""Names the ResourceClaimTemplates of railwright, and reads the claims of a pod that name one.

A name has the numbers of GPUs and rails, because the pods of a mutated workload request no GPUs any more:
`railwright-roce-2x4-3f2a91c0de` is two GPUs and four rails of fabric roce. A pod whose claims were cut has a second
template with the suffix `-2`.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from railwright.fabric import names, views

MAX_ACCELERATORS = 1024  # of a pod in claims, above any node (the range of gpusPerNode); a name has four digits
_DIGITS = 10  # of the hash
_MAX_FABRIC = 40  # characters of the fabric's name; the hash has all of it
_MAX_NAME = 100  # characters, above the longest name with all its parts
_INVALID = re.compile(r"[^a-z0-9]+")
_CHANNEL_DIGITS = 20  # of the hash: the name alone tells gangs apart
_CHANNEL = re.compile(rf"{names.CHANNEL_CLAIM}-[0-9a-f]{{{_CHANNEL_DIGITS}}}")
_NAME = re.compile(rf"{names.CLAIM_TEMPLATE_PREFIX}.+-(\d{{1,4}})x(\d{{1,4}})-[0-9a-f]{{{_DIGITS}}}(-\d{{1,2}})?")


class OwnClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims that names a template of railwright."""

    position: int
    name: str
    template: str


def build_names(fabric: str, accelerators: int, rails: int, inputs: bytes, claims: int) -> tuple[str, ...]:
    """Return the names of the templates of a pod. `inputs` is everything that the templates depend on."""
    readable = _INVALID.sub("-", fabric.lower()).strip("-")[:_MAX_FABRIC]
    digest = hashlib.sha256(inputs).hexdigest()[:_DIGITS]
    first = f"{names.CLAIM_TEMPLATE_PREFIX}{readable}-{accelerators}x{rails}-{digest}"
    return (first, *(f"{first}-{number}" for number in range(2, claims + 1)))


def name_claims(count: int) -> tuple[str, ...]:
    """Return the names of a pod's entries in spec.resourceClaims."""
    return (names.POD_CLAIM, *(f"{names.POD_CLAIM}-{number}" for number in range(2, count + 1)))


def name_channel(namespace: str, gang: str) -> str:
    """Return the name of a gang's ComputeDomain and of the template of its channels."""
    digest = hashlib.sha256(f"{namespace}\0{gang}".encode()).hexdigest()[:_CHANNEL_DIGITS]
    return f"{names.CHANNEL_CLAIM}-{digest}"


def is_channel(template: str) -> bool:
    """True if a template has the name of a ComputeDomain that railwright creates."""
    return len(template) <= _MAX_NAME and _CHANNEL.fullmatch(template) is not None


_CLAIM_NAMES = frozenset(name_claims(99))  # two digits, as in the names of templates


def is_own_name(template: str) -> bool:
    """True if a template has a name that railwright gives."""
    return _match(template) is not None


def read_accelerators(template: str) -> int:
    """Return the number of GPUs in the name of a template of railwright, 0 for another name."""
    match = _match(template)
    return int(match[1]) if match else 0


def is_first(template: str) -> bool:
    """True if a template of railwright is the first one of its pods."""
    match = _match(template)
    return match is not None and match[3] is None


def list_claims(pod: views.Pod) -> Sequence[OwnClaim]:
    """Return the claims of a pod that name a template of railwright, in order.

    Only the names that railwright gives to claims count. A pod that was not validated yet may repeat them: then there
    are none.
    """
    own = [
        OwnClaim(index, entry.name, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims or ())
        if entry.name in _CLAIM_NAMES
    ]
    if len(own) > len(_CLAIM_NAMES):
        return []
    return [claim for claim in own if is_own_name(claim.template)]


def has_other_claims(pod: views.Pod) -> bool:
    """True if a pod has claims beside that of a channel, of which each node has one to give."""
    channel = find_channel(pod)
    return len(pod.spec.resource_claims or ()) > (channel is not None)


def find_channel(pod: views.Pod) -> OwnClaim | None:
    """Return the claim of a pod that names the template of a ComputeDomain of railwright, or None."""
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.name == names.CHANNEL_CLAIM and is_channel(entry.resource_claim_template_name):
            return OwnClaim(index, entry.name, entry.resource_claim_template_name)
    return None


def list_templates(pod: views.Pod) -> list[str]:
    """Return the templates that railwright has written for a pod: those of its devices and that of its channel."""
    channel = find_channel(pod)
    return [claim.template for claim in (*list_claims(pod), *([channel] if channel else []))]


def count_accelerators(pod: views.Pod, containers: Sequence[views.Container]) -> list[int]:
    """Return the number of GPUs that each of these containers of a pod gets from claims of railwright."""
    counts = {claim.name: read_accelerators(claim.template) for claim in list_claims(pod)}
    return [  # each name has the GPUs of all claims
        max([0, *[counts[claim.name] for claim in container.resources.claims if claim.name in counts]])
        if counts and container.resources is not None
        else 0
        for container in containers
    ]


def _match(template: str) -> re.Match[str] | None:
    return _NAME.fullmatch(template) if len(template) <= _MAX_NAME else None
