"""Messages of rules about a whole manifest. The command parses the manifest and asks admission."""

import sys
from collections.abc import Mapping

from railwright.fabric import text
from railwright.fabric.lint.rule_types import Severity, list_rules, rule
from railwright.fabric.reasons import reason


@rule("M01", Severity.WARNING)
def describe_repeated(key: str, first_line: int) -> str:
    """A key is written twice.

    YAML forbids a repeated key in a mapping. kubectl silently takes the last one, so the first `resources` of a
    container has no effect. Lint reads the manifest as kubectl does.

    Source: YAML 1.2, 3.2.1.3; sigs.k8s.io/yaml, which kubectl uses.
    """
    return (
        f"{key}: the key is already on line {first_line}, which has no effect: kubectl takes the last one; join the two"
    )


@rule("M02", Severity.ERROR)
def describe_rejected(message: str) -> str:
    """Admission rejects the pod.

    The API server would not create the pod: railwright, another admission plugin or validation rejects it. The message
    is the one that kubectl would print.

    Source: docs/interface.md 3.6.
    """
    return message


@rule("M03", Severity.WARNING)
def describe_warned(warning: reason.Reason) -> str:
    """Admission warns about the pod.

    railwright would create the pod with a warning that its author can act on, such as a network that does not exist.
    The message begins with the code of the warning. Warnings that come from lint have their own rules.

    Source: docs/interface.md 3.7.
    """
    return warning.line


@rule("M04", Severity.WARNING)
def describe_shared_claim(claim: str, users: Mapping[str, int]) -> str:
    """Several pods share one ResourceClaim.

    All pods that name a ResourceClaim use the same devices, so they run on one node; the replicas of a template too.
    Drivers of NICs move an interface into the first of these pods and fail the others. With a ResourceClaimTemplate
    each pod has a claim of its own. Not reported for a claim in the same files that has no NIC: GPUs can be shared on
    purpose.

    Source: kubernetes-sigs/dranet issue 139 and pull request 214; Kubernetes, dynamic resource allocation.
    """
    by_object = ", ".join(f"{title} ({text.format_count(pods, 'pod')})" for title, pods in users.items())
    return (
        f"ResourceClaim {claim} is used by {sum(users.values())} pods: {by_object}. They all run on one node, and a "
        "driver of NICs fails all but the first; write a ResourceClaimTemplate, and its name in the pods "
        "(resourceClaimTemplateName)"
    )


@rule("M05", Severity.WARNING)
def describe_shares(resource: str, usual: int) -> str:
    """The policy counts shares as accelerators.

    A slice of MIG, a replica of a time-sliced GPU or a percent of Koordinator is a part of an accelerator. Without its
    number in `acceleratorUnits` each counts as a whole one, so that a pod with seven slices of one GPU gets the rails
    of seven GPUs. Reported where a fabric has `gpusPerNode`.

    Source: NVIDIA MIG user guide; Koordinator, GPU share.
    """
    return (
        f"accelerators: {resource} counts shares, and each counts as an accelerator; set how many make one in "
        f"acceleratorUnits, such as {resource}: {usual}"
    )


RULES = list_rules(sys.modules[__name__])
