"""Reads from NetworkPolicies who may connect to a port of a pod."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import label_selectors, views

_INGRESS = "Ingress"
_EVERYONE = ("0.0.0.0/0", "::/0")


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[views.Requirement] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return label_selectors.matches(self.match_labels or {}, self.match_expressions or (), labels)

    def describe(self) -> str:
        """Return the selector as kubectl's -l has it; "" if it selects everything."""
        equal = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        others = [
            f"{expression.key} {expression.operator} ({','.join(expression.values or ())})"
            for expression in self.match_expressions or ()
        ]
        return ",".join([*equal, *others])


class _Addresses(msgspec.Struct):
    cidr: str = ""


class _Peer(msgspec.Struct, rename="camel"):
    pod_selector: _Selector | None = None
    namespace_selector: _Selector | None = None
    ip_block: _Addresses | None = None

    def describe(self, namespace: str) -> str:
        """Return who may connect; "" for everyone."""
        if self.ip_block is not None:
            return "" if self.ip_block.cidr in _EVERYONE else self.ip_block.cidr
        pods = self.pod_selector.describe() if self.pod_selector else ""
        if self.namespace_selector is None:
            return f"pods {pods or 'of any label'} of namespace {namespace}"
        namespaces = self.namespace_selector.describe()
        if not pods and not namespaces:
            return "pods of all namespaces"
        return f"pods {pods or 'of any label'} of namespaces {namespaces or 'of any label'}"


class _Port(msgspec.Struct, rename="camel"):
    port: int | str | None = None
    end_port: int | None = None
    protocol: str = "TCP"

    def includes(self, number: int, name: str) -> bool:
        """Return whether the rule is for this port of a container."""
        if self.protocol != "TCP":
            return False
        if isinstance(self.port, int):
            return self.port <= number <= (self.end_port or self.port)
        return self.port is None or self.port == name


class _Rule(msgspec.Struct):
    ports: list[_Port] | None = None
    peers: list[_Peer] | None = msgspec.field(default=None, name="from")


class _Spec(msgspec.Struct, rename="camel"):
    pod_selector: _Selector = msgspec.field(default_factory=_Selector)
    policy_types: list[str] | None = None
    ingress: list[_Rule] | None = None


class NetworkPolicy(msgspec.Struct):
    """The fields of a NetworkPolicy that say who may connect to a pod."""

    spec: _Spec = msgspec.field(default_factory=_Spec)

    def closes(self, labels: Mapping[str, str]) -> bool:
        """Return whether pods with these labels get only connections that a policy allows."""
        return self.spec.pod_selector.matches(labels) and _INGRESS in (self.spec.policy_types or (_INGRESS,))


def list_peers(
    policies: Iterable[NetworkPolicy], namespace: str, labels: Mapping[str, str], number: int, name: str
) -> Sequence[str]:
    """Return who may connect to this port of pods of `namespace` with these labels; () for everyone."""
    closing = [policy for policy in policies if policy.closes(labels)]
    peers: list[str] = []
    for rule in (rule for policy in closing for rule in policy.spec.ingress or ()):
        if rule.ports and not any(port.includes(number, name) for port in rule.ports):
            continue
        described = [peer.describe(namespace) for peer in rule.peers or ()]
        if not described or not all(described):
            return ()
        peers += described
    return tuple(dict.fromkeys(peers)) or (("nobody",) if closing else ())
