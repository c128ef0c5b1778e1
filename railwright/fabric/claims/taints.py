"""Decides which devices have a taint that keeps pods away, by their slice or by a DeviceTaintRule."""

from collections.abc import Iterator, Sequence

from railwright.fabric import node_views, views
from railwright.fabric.claims import objects, slices


class TaintRules:
    """All DeviceTaintRules by name, and by the pool that they select: a cluster may have one for each broken device."""

    def __init__(self) -> None:
        self._rules: dict[str, objects.DeviceTaintRule] = {}
        self._rules_by_pool: dict[str | None, dict[str, objects.DeviceTaintRule]] = {}  # None: those of any pool

    def is_tainted(self, device: slices.OfferedDevice, tolerations: Sequence[views.Toleration] = ()) -> bool:
        """True if a taint keeps pods from a device that tolerate only `tolerations`."""
        if not device.taints and not self._rules:
            return False
        return any(taint.is_blocking(tolerations) for taint, _ in self._list_taints(device))

    def describe_taint(self, device: slices.OfferedDevice) -> str:
        """Return a taint that keeps pods away, as KEY=VALUE:EFFECT, and the rule that sets it; "" if there is none."""
        for taint, rule in self._list_taints(device):
            if taint.is_blocking():
                written = f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
                return f"{written} of DeviceTaintRule {rule}" if rule else written
        return ""

    def upsert(self, rule: objects.DeviceTaintRule) -> bool:
        """Add or update a rule. Returns False if it is unchanged: kube-scheduler updates its status."""
        name = rule.metadata.name
        previous = self._rules.get(name)
        self.remove(rule)
        self._rules[name] = rule
        self._rules_by_pool.setdefault(_get_pool(rule), {})[name] = rule
        return previous is None or previous.spec != rule.spec

    def remove(self, rule: objects.DeviceTaintRule) -> bool:
        """Remove a rule. Returns False if it was not known."""
        previous = self._rules.pop(rule.metadata.name, None)
        if previous is None:
            return False
        rules = self._rules_by_pool[_get_pool(previous)]
        del rules[rule.metadata.name]
        if not rules:
            del self._rules_by_pool[_get_pool(previous)]
        return True

    def replace(self, rules: Sequence[objects.DeviceTaintRule]) -> None:
        """Replace all rules."""
        self._rules.clear()
        self._rules_by_pool.clear()
        for rule in rules:
            self.upsert(rule)

    def _list_taints(self, device: slices.OfferedDevice) -> Iterator[tuple[node_views.Taint, str]]:
        """Yield the taints of a device, each with the name of the rule that sets it, "" for its slice."""
        for taint in device.taints:
            yield taint, ""
        for pool in (device.id.pool, None):
            for name, rule in self._rules_by_pool.get(pool, {}).items():
                if _selects(rule, device.id):
                    yield rule.spec.taint, name


def _get_pool(rule: objects.DeviceTaintRule) -> str | None:
    return rule.spec.device_selector.pool if rule.spec.device_selector is not None else None


def _selects(rule: objects.DeviceTaintRule, device: slices.DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)
