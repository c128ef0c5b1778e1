"""Rules about a manifest as a whole: what kubectl makes of it, and what admission answers to its pods.

The command reports them: it parses the manifest, and asks admission.
"""

from railwright.fabric.lint import rule_types


class ManifestRule(rule_types.RuleDescription, frozen=True, kw_only=True):
    """A rule without a check of its own."""

    def build_finding(self, message: str, name: str = "") -> rule_types.Finding:
        """Return a finding of this rule. `name` is the key or code that it is about."""
        return rule_types.Finding(self.code, self.severity, name, "", message)


REPEATED_KEY = ManifestRule(
    code="M01",
    name="repeated-key",
    severity=rule_types.Severity.WARNING,
    title="A key is written twice",
    explanation=(
        "YAML forbids a key that is there twice in a mapping. kubectl silently takes the last one, so that the "
        "first `resources` of a container has no effect. Lint reads the manifest as kubectl does."
    ),
    source="YAML 1.2, 3.2.1.3; sigs.k8s.io/yaml, which kubectl uses",
)
REJECTED = ManifestRule(
    code="M02",
    name="rejected",
    severity=rule_types.Severity.ERROR,
    title="Admission rejects the pod",
    explanation=(
        "The API server would not create the pod: railwright, another admission plugin or validation rejects it. The "
        "message is the one that kubectl would print."
    ),
    source="docs/interface.md 3.6",
)
WARNED = ManifestRule(
    code="M03",
    name="warned",
    severity=rule_types.Severity.WARNING,
    title="Admission warns about the pod",
    explanation=(
        "railwright would create the pod with a warning that its author can act on, such as rails for a pod without "
        "accelerators. The message begins with the code of the warning. Warnings that come from "
        "lint have their own rules."
    ),
    source="docs/interface.md 3.7",
)
RULES = (REPEATED_KEY, REJECTED, WARNED)
