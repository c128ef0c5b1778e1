"""Types of linting: the input of a rule, its findings, and the rule itself.

What users read of a rule is its section in railwright/fabric/lint/rules.md. `None` means unknown, and a rule that needs
an unknown value reports nothing.
"""

import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from railwright.fabric import text
from railwright.fabric import text as texts
from railwright.fabric.nccl import derive, integers
from railwright.fabric.policy import model as policies

BLANKS = " \t\r\n"
SURROUNDING = f"{BLANKS}\"'"  # characters that do not belong to a value at its ends


class Severity(enum.StrEnum):
    """Severity of a finding. Findings never cause a rejection."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Origin(enum.StrEnum):
    """Place of a setting, in NCCL's order of precedence."""

    ENV = "env"  # of the container
    MPIRUN = "mpirun"  # -x NAME=VALUE or -mca NAME VALUE on a command line
    FILE = "nccl.conf"


class Setting(msgspec.Struct, frozen=True):
    """A variable as written. `value` is None if it comes from another source (valueFrom, `-x NAME`)."""

    name: str
    value: str | None
    where: str  # place for messages: "env[3]", "command: -x", "line 4"
    origin: Origin = Origin.ENV

    @property
    def text(self) -> str:
        """The value without surrounding quotes and blanks, which rule N11 reports; "" if it is unknown."""
        return (self.value or "").strip(SURROUNDING)


class FabricContext(msgspec.Struct, frozen=True):
    """The known properties of the fabric that the ranks use. Without a policy, most are None."""

    transport: policies.Transport | None = None
    fabric: policies.Fabric | None = None
    primary: str = "eth0"  # the pod's cluster network
    interfaces: tuple[str, ...] | None = None  # of the pod, primary first; None: those of the node
    rail_interfaces: tuple[str, ...] = ()  # the interfaces on secondary networks
    rails: tuple[str, ...] = ()  # names of those that the pod gets
    devices: tuple[tuple[str, ...], ...] | None = None  # RDMA device names, a tuple for each possible node type
    topology_files: tuple[str | None, ...] = ()  # of the nodes that can run the pod; None: no file
    exclusive: bool | None = None  # True: devices are assigned to pods one by one, so their names are unknown


class RankContext(msgspec.Struct, frozen=True, dict=True):
    """A container of a pod template, with the settings and context of all processes in it."""

    title: str  # "Job prod/llm task worker container pytorch"
    settings: tuple[Setting, ...] = ()  # in NCCL's order of precedence: the first of each name is effective
    fabric_context: FabricContext = FabricContext()
    count: int | None = None  # pods created from the template
    job: int | None = None  # ranks of the job, from all its templates
    accelerators: int = 0  # requested by the container
    devices: Mapping[str, int] = {}  # requested extended resources except accelerators: name -> number
    networks: int | None = None  # secondary networks the pod selects
    capabilities: frozenset[str] | None = None  # added ones; None if unknown (nccl.conf without a pod)
    privileged: bool = False
    run_as_user: int | None = None  # effective uid if set in the manifest
    run_as_non_root: bool = False
    host_network: bool = False
    has_ranks: bool = True  # False: its mpirun starts ranks in other pods only
    is_benchmark: bool = False  # its program is of nccl-tests
    node_labels: frozenset[str] = frozenset()  # keys by which the pod selects nodes
    instance_types: frozenset[str] = frozenset()  # of the nodes that the pod selects; empty: any
    own_names: frozenset[str] = frozenset()  # variables that the container's scripts read themselves
    has_hidden_names: bool = False  # it runs a script of a ConfigMap, which may read more
    mounts: Mapping[str, str] = {}  # mount path -> kind of volume: "memory", "emptyDir", "hostPath", "configMap", ...
    shared_memory: int | None = None  # bytes of the memory volume at /dev/shm; 0: unlimited; None: no volume
    image: str | None = None
    images: frozenset[str] = frozenset()  # of all the job's rank containers
    nccl: tuple[int, ...] | None = None  # version of NCCL in the image, such as (2, 21, 5)

    @functools.cached_property
    def effective(self) -> Mapping[str, Setting]:
        """The effective setting of each name, which is the first one, in order."""
        settings: dict[str, Setting] = {}
        for setting in self.settings:
            settings.setdefault(setting.name, setting)
        return settings

    @functools.cached_property
    def file_lines(self) -> Mapping[str, Setting]:
        """The first line of an nccl.conf for each name, also if it has no effect."""
        return {line.name: line for line in reversed(self.settings) if line.origin is Origin.FILE}

    @functools.cached_property
    def rdma_devices(self) -> Mapping[str, int]:
        """The requested RDMA devices by resource: resources of the fabric's rails, or with an RDMA name."""
        fabric = self.fabric_context.fabric
        rails = {rail.resource for rail in fabric.rails} if fabric else set()
        return {name: amount for name, amount in self.devices.items() if name in rails or is_rdma(name)}

    def get_setting(self, name: str) -> Setting | None:
        """Return the effective setting of a name, or None if it is unset."""
        return self.effective.get(name)

    def get_value(self, name: str) -> str | None:
        """Return the effective value of a name, or None if it is unset or unknown."""
        setting = self.effective.get(name)
        return None if setting is None else setting.value


class Finding(msgspec.Struct, frozen=True):
    """A reported violation of a rule. `name` is the setting, or "" if the finding is about the ranks as a whole."""

    code: str
    severity: Severity
    name: str
    where: str
    message: str  # one or two sentences with the key, the value and the fix


class Violation(msgspec.Struct, frozen=True):
    """A violation by the ranks as a whole. The engine adds the rule's code and severity."""

    message: str
    name: str = ""
    where: str = ""


class RuleDescription(msgspec.Struct, frozen=True):
    """Row of a rule as users read it: in the documentation and in `railwright lint --rules`."""

    code: str  # N01
    name: str  # unknown-variable
    severity: Severity
    title: str  # one line
    explanation: str  # what happens and why
    source: str  # public source of the fact


@functools.cache
def read_descriptions() -> Mapping[str, RuleDescription]:
    """Return the descriptions by code: rules about settings, then those about claims, then about whole manifests."""
    rows = text.read_rows("railwright.fabric.lint", "rules.md")
    return {
        code: msgspec.convert({**row, "code": code, "explanation": row["text"]}, RuleDescription)
        for code, row in rows.items()
    }


def find_severity(code: str) -> Severity:
    """Return the severity of a rule's findings."""
    return read_descriptions()[code].severity


def build_finding(code: str, message: str, name: str = "", where: str = "") -> Finding:
    """Return a finding of a rule. `name` is the setting, key or code that it is about."""
    return Finding(code, find_severity(code), name, where, message)


# Rules about a manifest as a whole, without a check here: the command parses the manifest, and asks admission.
REPEATED_KEY, REJECTED, WARNED = "M01", "M02", "M03"


class Rule(msgspec.Struct, frozen=True):
    """A rule about the ranks of a container, with a function for each kind of what it reads.

    `check_setting` yields what is wrong with a setting, as text that follows NAME=VALUE. It is called for the effective
    settings of `variables`: their names, or a function that recognizes them. `check_ranks` yields what is wrong with
    the ranks as a whole. It is called if one of the `needs` is present: fields of RankContext, or such as
    "fabric_context.rail_interfaces".
    """

    code: str
    variables: frozenset[str] | Callable[[str], bool] = frozenset()
    check_setting: Callable[[Setting, RankContext], Iterable[str]] = lambda _setting, _ranks: ()
    needs: tuple[str, ...] = ()
    check_ranks: Callable[[RankContext], Iterable[Violation]] = lambda _ranks: ()

    def reads(self, variable: str) -> bool:
        """True if the rule checks the settings of a variable."""
        return self.variables(variable) if callable(self.variables) else variable in self.variables


# Names of the published device plugins: network-operator, k8s-rdma-shared-dev-plugin, sriov-network-device-plugin,
# aliyun/erdma, vpc.amazonaws.com/efa. Only separate words match, so that "performance" does not.
_RDMA = re.compile(
    r"(?<![a-z])(rdma|hca|roce|infiniband|ib|mlx[0-9]*|mlnx|mellanox|hostdev|sriov|vfs?|erdma|efa|pvrdma|cx[0-9]+)(nics?)?(?![a-z])"
)
_VIRTUAL = re.compile(r"(?<![a-z])(sriov|vfs?[0-9]*)(?![a-z])")
_HOST_DEVICE = re.compile(r"(?<![a-z])hostdev(?![a-z])")  # network-operator, host device network
_ONE_BY_ONE = frozenset({policies.Transport.ERDMA, policies.Transport.EFA})


def is_rdma(resource: str) -> bool:
    """True if the name of a resource is that of an RDMA device."""
    return _RDMA.search(resource.lower()) is not None


def is_virtual(resource: str) -> bool:
    """True if the name of a resource is that of a pool of virtual functions."""
    return _VIRTUAL.search(resource.lower()) is not None


def is_exclusive(resource: str) -> bool:
    """True if the name of a resource is that of a plugin that hands out RDMA devices one by one."""
    return is_virtual(resource) or _HOST_DEVICE.search(resource.lower()) is not None


def are_exclusive(transport: policies.Transport | None, resources: frozenset[str]) -> bool | None:
    """True if devices are assigned to pods one by one, so their names are not known before; None if unknown."""
    if transport in _ONE_BY_ONE or any(is_virtual(resource) for resource in resources):
        return True
    return False if resources else None


# --- settings as NCCL reads them, what fabric and policy say of them, and their form in messages -------

WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
_MAX_QUOTED = 60  # characters of a user's text in a message
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # aws-efa-k8s-device-plugin
_WITHOUT_RDMA = frozenset({policies.Transport.TCP, policies.Transport.PLUGIN})
_DEFAULTS = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}


def parse_number(setting: Setting | None, ranks: RankContext) -> int | None:
    """Return the number that the ranks' NCCL reads from a setting, or None if it is unset, unknown or invalid."""
    if setting is None or setting.value is None:
        return None
    number = integers.parse(setting.value, ranks.nccl)
    return None if isinstance(number, integers.NoValue) else number


def read_number(ranks: RankContext, name: str) -> int | None:
    """Return the number that NCCL reads for a name, or None if it is unset, unknown or invalid."""
    return parse_number(ranks.get_setting(name), ranks)


def is_older(ranks: RankContext, *release: int) -> bool:
    """True if the image's NCCL is known to be older than a release."""
    return ranks.nccl is not None and ranks.nccl < release


def is_on_efa(ranks: RankContext) -> bool:
    """True on AWS EFA, by the policy or, without a policy, by the requested device."""
    transport = ranks.fabric_context.transport
    return transport is policies.Transport.EFA or (transport is None and EFA_RESOURCE in ranks.devices)


def is_rdma_requested(ranks: RankContext) -> bool:
    """True if the container requests RDMA devices on a fabric that the policy does not restrict to TCP."""
    return ranks.fabric_context.transport not in _WITHOUT_RDMA and bool(ranks.rdma_devices)


def choose_network(ranks: RankContext) -> str:
    """Return the value of NCCL_NET for the ranks' fabric."""
    transport = policies.Transport.EFA if is_on_efa(ranks) else ranks.fabric_context.transport
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.plugin.network:
        return fabric.nccl.plugin.network
    return "IB" if transport is None else _DEFAULTS.get(transport, "IB")


def is_policy_value(setting: Setting, ranks: RankContext) -> bool:
    """True if a variable has the value that the operator's policy gives it, which rules then accept."""
    fabric = ranks.fabric_context.fabric
    if fabric is None or setting.value is None:
        return False
    derived = _derive_variables(fabric, ranks.fabric_context.primary)
    return setting.value in (fabric.env.get(setting.name), derived.get(setting.name))


def _derive_variables(fabric: policies.Fabric, primary: str) -> dict[str, str]:
    """Return the derived variables of a fabric, also if the policy turns derivation off."""
    deriving_fabric = msgspec.structs.replace(fabric, nccl=msgspec.structs.replace(fabric.nccl, derive=True))
    case = derive.Case(deriving_fabric, deriving_fabric.rails, None, primary, is_foreign=False)
    return {variable.name: variable.value for variable in derive.derive(case)}


def quote(text: str) -> str:
    """Return a user's text for a message, escaped and truncated."""
    short = texts.abbreviate(text, _MAX_QUOTED)
    return (
        short if short.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
    )


def format_setting(setting: Setting) -> str:
    """Return NAME=VALUE for a message. The value is quoted if it is empty or contains blanks or quotes."""
    if setting.value is None:
        return quote(setting.name)
    value = quote(setting.value)
    is_bare = value and value == value.strip(SURROUNDING) and " " not in value
    return f"{quote(setting.name)}={value if is_bare else repr(value)}"
