"""Types of the linter: rules, their input and their findings.

A value of None is unknown. A rule that needs an unknown value reports nothing.
"""

import enum
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from railwright.fabric import text as texts
from railwright.fabric.nccl import parsing
from railwright.fabric.policy import model as policies

BLANKS = " \t\r\n"
QUOTES = "\"'"
SURROUNDING = f"{BLANKS}{QUOTES}"  # characters that do not belong to a value at its ends


class Severity(enum.StrEnum):
    """Severity of a finding. Admission rejects no pod because of a finding, even of severity `error`."""

    ERROR = "error"
    WARNING = "warning"


class Setting(msgspec.Struct, frozen=True):
    """Variable as its author wrote it. `value` is None if the value is elsewhere (valueFrom, `-x NAME`)."""

    name: str
    value: str | None
    where: str  # place for messages: "env[3]", "command: -x", "line 4" of nccl.conf

    @property
    def text(self) -> str:
        """The value without surrounding quotes and blanks (rule N11 reports these); "" if it is unknown."""
        return (self.value or "").strip(SURROUNDING)

    @property
    def number(self) -> int | None:
        """The number that NCCL reads from the value; None if the value is unknown or no number."""
        return None if self.value is None else parsing.parse_number(self.value)


class FabricContext(msgspec.Struct, frozen=True):
    """Properties of the fabric that ranks use. Without a policy, most are None."""

    transport: policies.Transport | None = None
    fabric: policies.Fabric | None = None
    primary: str = "eth0"  # the pod's cluster network
    interfaces: tuple[str, ...] | None = None  # of the pod, primary first; None: those of the node
    rail_interfaces: tuple[str, ...] = ()  # the interfaces on secondary networks
    rails: tuple[str, ...] = ()  # names of those that the pod gets
    devices: Mapping[str, tuple[str, ...]] | None = None  # RDMA device names by possible node shape, "" without one
    found: frozenset[str] = frozenset()  # variables that get what is found in the pod, unless it sets them itself
    topology_file: str = ""  # that the policy names
    exclusive: bool | None = None  # True: devices are assigned to pods one by one, so their names are unknown

    @property
    def control_interface(self) -> str:
        """Interface for control traffic: the primary interface, or the pod's first if the pod lacks the primary."""
        return self.primary if self.interfaces is None or self.primary in self.interfaces else self.interfaces[0]


class RankContext(msgspec.Struct, frozen=True, dict=True):
    """Input of the rules: a container that runs or starts ranks, with its settings and its fabric."""

    title: str  # "Job prod/llm task worker container pytorch"
    settings: tuple[Setting, ...] = ()  # in NCCL's order of precedence: the first of each name is effective
    fabric_context: FabricContext = FabricContext()
    accelerators: int = 0  # requested by the container
    devices: Mapping[str, int] = {}  # requested extended resources except accelerators: name -> number
    capabilities: frozenset[str] | None = None  # added ones; None if unknown (nccl.conf without a pod)
    privileged: bool = False
    run_as_user: int | None = None  # effective uid if set in the manifest
    run_as_non_root: bool = False
    host_network: bool = False
    has_ranks: bool = True  # False: its mpirun starts ranks in other pods only
    is_benchmark: bool = False  # its program is of nccl-tests
    node_labels: frozenset[str] = frozenset()  # keys by which the pod selects nodes
    own_names: frozenset[str] = frozenset()  # variables that the container's scripts read themselves
    has_hidden_names: bool = False  # it runs a script of a ConfigMap, which may read more
    mounts: Mapping[str, str] = {}  # mount path -> "hostPath", "policy" for what railwright has added, or "other"
    shared_memory: int | None = None  # bytes of the memory volume at /dev/shm; 0: unlimited; None: no volume
    image: str | None = None

    @functools.cached_property
    def effective_settings(self) -> Mapping[str, Setting]:
        """Settings by name, in order. If a name has several, the first is effective."""
        settings: dict[str, Setting] = {}
        for setting in self.settings:
            settings.setdefault(setting.name, setting)
        return settings

    @functools.cached_property
    def rdma_devices(self) -> Mapping[str, int]:
        """Number of requested RDMA devices by resource: resources of the fabric's rails, and known RDMA resources."""
        fabric = self.fabric_context.fabric
        rails = {rail.resource for rail in fabric.rails} if fabric else set()
        return {name: amount for name, amount in self.devices.items() if name in rails or is_rdma_resource(name)}

    @property
    def is_rdma_requested(self) -> bool:
        """True if the container requests RDMA devices and the transport, if known, uses them."""
        without_rdma = self.fabric_context.transport in {policies.Transport.TCP, policies.Transport.PLUGIN}
        return bool(self.rdma_devices) and not without_rdma

    @property
    def is_on_efa(self) -> bool:
        """True if the fabric's transport is EFA or, without a policy, if the container requests EFA devices."""
        transport = self.fabric_context.transport
        return transport is policies.Transport.EFA or (transport is None and EFA_RESOURCE in self.devices)

    def get_setting(self, name: str) -> Setting | None:
        """Return the effective setting of a variable, or None if it is unset."""
        return self.effective_settings.get(name)

    def get_value(self, name: str) -> str | None:
        """Return the effective value of a variable, or None if it is unset or its value is unknown."""
        return setting.value if (setting := self.effective_settings.get(name)) else None


class Finding(msgspec.Struct, frozen=True):
    """Violation of a rule, as reported. `name` is the variable, or "" if the finding is about no single variable."""

    code: str
    severity: Severity
    name: str
    where: str
    message: str  # one or two sentences with the key, the value and the fix


class Violation(msgspec.Struct, frozen=True):
    """Violation that a rule's function yields. If it has a setting, its finding begins with NAME=VALUE."""

    message: str
    setting: Setting | None = None
    name: str = ""  # without a setting: the variable or resource that it is about
    path: tuple[str | int, ...] = ()  # of a rule about claims: the place below `devices`


class Rule(msgspec.Struct, frozen=True):
    """Lint rule: a code, a severity, the function that checks it, and the variables that it is about.

    `settings` are the names of these variables, or a function that recognizes the names. `check` is called with the
    setting and the RankContext for each of them that is set. Without `settings`, `check` is called once, with the
    RankContext. The docstring of `check` is the rule's section in the reference: a title, an explanation and, after
    `Source:`, the references.
    """

    code: str
    severity: Severity
    check: Callable[..., Any]
    settings: frozenset[str] | Callable[[str], bool] = frozenset()

    def checks_variable(self, variable: str) -> bool:
        """True if the rule checks this variable."""
        return self.settings(variable) if callable(self.settings) else variable in self.settings

    def build_finding(self, message: str, name: str = "", setting: Setting | None = None) -> Finding:
        """Return a finding of the rule. With a setting, NAME=VALUE comes before the message."""
        if setting is None:
            return Finding(self.code, self.severity, name, "", message)
        return Finding(self.code, self.severity, setting.name, setting.where, f"{format_setting(setting)}: {message}")


def rule(
    code: str, severity: Severity, *, settings: frozenset[str] | Callable[[str], bool] = frozenset()
) -> Callable[[Callable[..., Any]], Rule]:
    """Return a decorator that makes a Rule of a function."""
    return lambda check: Rule(code, severity, check, settings)


def list_rules(*modules: types.ModuleType) -> tuple[Rule, ...]:
    """Return the rules that these modules define, sorted by code."""
    rules = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    return tuple(sorted(rules, key=lambda rule: rule.code))


# Names of the published device plugins: network-operator, k8s-rdma-shared-dev-plugin, sriov-network-device-plugin,
# aliyun/erdma, vpc.amazonaws.com/efa. Only separate words match, so that "performance" does not.
_RDMA = re.compile(
    r"(?<![a-z])(rdma|hca|roce|infiniband|ib|mlx[0-9]*|mlnx|mellanox|hostdev|sriov|vfs?|erdma|efa|pvrdma|cx[0-9]+)(nics?)?(?![a-z])"
)
_VIRTUAL = re.compile(r"(?<![a-z])(sriov|vfs?[0-9]*)(?![a-z])")
_EXCLUSIVE = re.compile(_VIRTUAL.pattern + r"|(?<![a-z])hostdev(?![a-z])")  # network-operator, host device network


def is_rdma_resource(resource: str) -> bool:
    """True if the name of an extended resource is one that device plugins use for RDMA devices."""
    return _RDMA.search(resource.lower()) is not None


def is_virtual_resource(resource: str) -> bool:
    """True if the name of an extended resource is one that device plugins use for virtual functions."""
    return _VIRTUAL.search(resource.lower()) is not None


def is_exclusive_resource(resource: str) -> bool:
    """True if the name of an extended resource is that of devices that pods do not share."""
    return _EXCLUSIVE.search(resource.lower()) is not None


def are_devices_exclusive(transport: policies.Transport | None, resources: frozenset[str]) -> bool | None:
    """True if no pods share a device, so that its name is unknown before the pod starts; None without resources."""
    if transport in {policies.Transport.ERDMA, policies.Transport.EFA} or any(map(is_virtual_resource, resources)):
        return True
    return False if resources else None


# --- settings as NCCL reads them, what fabric and policy say of them, and their form in messages -------

WITHOUT_GIDS = frozenset(
    {policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.PLUGIN, policies.Transport.TCP}
)
_MAX_QUOTED = 63  # characters of a user's text in a message
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin


def is_nvshmem_on(value: str | None) -> bool:
    """True if NVSHMEM reads a value as true: it begins with 1, t or y, in upper or lower case."""
    return value is not None and value.lower().startswith(("1", "t", "y"))


def quote(text: str) -> str:
    """Return a user's text, escaped and truncated to 63 characters, for a message."""
    return texts.limit_message(text, _MAX_QUOTED)


def format_setting(setting: Setting) -> str:
    """Return NAME=VALUE for a message.

    The value is quoted if it is empty, contains blanks or quotes, or ends with a punctuation mark.
    """
    if setting.value is None:
        return quote(setting.name)
    value = quote(setting.value)
    is_bare = value and value == value.strip(SURROUNDING) and " " not in value and value[-1] not in ":;,."
    return f"{quote(setting.name)}={value if is_bare else repr(value)}"
