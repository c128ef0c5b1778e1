"""Decides which devices have a taint that keeps pods away, by their slice or by a DeviceTaintRule."""

from collections.abc import Sequence

from railwright.fabric.claims import objects, slices

_UNSCHEDULABLE = frozenset({"NoSchedule", "NoExecute"})


class TaintRules:
    """All DeviceTaintRules by name."""

    def __init__(self) -> None:
        self._rules: dict[str, objects.DeviceTaintRule] = {}

    def is_tainted(self, device: slices.OfferedDevice) -> bool:
        """True if a taint keeps pods from a device."""
        if not device.taints and not self._rules:
            return False
        by_rule = (rule.spec.taint for rule in self._rules.values() if _selects(rule, device.id))
        return any(taint.effect in _UNSCHEDULABLE for taint in (*device.taints, *by_rule))

    def describe_taint(self, device: slices.OfferedDevice) -> str:
        """Return a taint that keeps pods away, as KEY=VALUE:EFFECT, and the rule that sets it; "" if there is none."""
        rows = [(taint, "") for taint in device.taints]
        rows += [(rule.spec.taint, name) for name, rule in self._rules.items() if _selects(rule, device.id)]
        for taint, rule in rows:
            if taint.effect in _UNSCHEDULABLE:
                written = f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
                return f"{written} of DeviceTaintRule {rule}" if rule else written
        return ""

    def upsert(self, rule: objects.DeviceTaintRule) -> bool:
        """Add or update a rule. Returns False if it is unchanged: kube-scheduler updates its status."""
        previous = self._rules.get(rule.metadata.name)
        self._rules[rule.metadata.name] = rule
        return previous is None or previous.spec != rule.spec

    def remove(self, rule: objects.DeviceTaintRule) -> bool:
        """Remove a rule. Returns False if it was not known."""
        return self._rules.pop(rule.metadata.name, None) is not None

    def replace(self, rules: Sequence[objects.DeviceTaintRule]) -> None:
        """Replace all rules."""
        self._rules = {rule.metadata.name: rule for rule in rules}


def _selects(rule: objects.DeviceTaintRule, device: slices.DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)
