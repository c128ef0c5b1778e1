"""Rules about a whole manifest: repeated keys, and the outcome of admission. `railwright lint` finds both."""

import sys

from railwright.fabric.lint.rule_types import Severity, list_rules, rule
from railwright.fabric.reasons import reason


@rule("M01", Severity.WARNING)
def describe_repeated_key(key: str, first_line: int) -> str:
    """A key is written twice.

    YAML forbids a repeated key in a mapping. kubectl silently takes the last one, so the first `resources` of a
    container has no effect. Lint reads the manifest as kubectl does.

    Source: YAML 1.2, 3.2.1.3; sigs.k8s.io/yaml, which kubectl uses.
    """
    return f"{key}: this key is also on line {first_line}, and kubectl uses only the last one; merge the two"


@rule("M02", Severity.ERROR)
def describe_rejection(message: str) -> str:
    """Admission rejects the pod.

    railwright would reject the pod, as far as the file, the policy and the labels of the namespace tell. The message is
    the one that kubectl would print. Lint reads no networks and no nodes of the cluster, and asks no other admission
    plugin: `railwright explain FILE` does, and names a NetworkAttachmentDefinition that does not exist.

    Source: docs/interface.md 3.6.
    """
    return message


@rule("M03", Severity.WARNING)
def describe_warning(warning: reason.Reason) -> str:
    """Admission warns about the pod.

    railwright would admit the pod with a warning that the pod's author can act on, for example that the pod gets no
    networks because of `hostNetwork`. The message begins with the code of the warning. Warnings that come from lint
    have their own rules.

    Source: docs/interface.md 3.7.
    """
    return warning.line


RULES = list_rules(sys.modules[__name__])
