"""The words of linting: what a rule looks at, what it says, and what a rule is.

Owns these shapes only. Where the settings come from (a pod at admission, a manifest, a command line, a file) is
`subjects`'; which rules there are is found in `rules/`, one file each. `None` always means "not known", and a rule that
needs what is not known says nothing.
"""

import enum
from collections.abc import Callable, Iterable, Mapping

import msgspec

from railwright.fabric.policy import model as policies


class Severity(enum.StrEnum):
    """How bad a finding is. Nothing is ever refused for one."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Origin(enum.StrEnum):
    """Where a setting was written, in NCCL's order of precedence."""

    ENV = "env"  # of the container
    MPIRUN = "mpirun"  # -x NAME=VALUE or -mca NAME VALUE on a command line
    FILE = "nccl.conf"


class Setting(msgspec.Struct, frozen=True):
    """One variable as it was written; `value` None where it comes from elsewhere (valueFrom, `-x NAME`)."""

    name: str
    value: str | None
    where: str  # as a finding shows it: "env[3]", "command: -x", "line 4"
    origin: Origin = Origin.ENV


class Site(msgspec.Struct, frozen=True):
    """What is known of the fabric the ranks use; without a policy nearly nothing."""

    transport: policies.Transport | None = None
    fabric: policies.Fabric | None = None
    primary: str = "eth0"  # the pod's cluster network
    interfaces: tuple[str, ...] | None = None  # of the pod, the primary first; None: the node's own
    rail_interfaces: tuple[str, ...] = ()  # those of them on secondary networks
    devices: tuple[tuple[str, ...], ...] | None = None  # RDMA device names, one tuple for each node type possible
    exclusive: bool | None = None  # True: devices are handed to the pod one by one, names unknown before
    rail_subnets: tuple[str, ...] | None = None  # CIDRs of the rails, where the networks' IPAM says them


class Ranks(msgspec.Struct, frozen=True):
    """One container of one pod template: all the processes that are started from it with these settings."""

    title: str  # "Job prod/llm task worker container pytorch"
    settings: tuple[Setting, ...] = ()  # in NCCL's order of precedence: the first of a name wins
    site: Site = Site()
    count: int | None = None  # pods made from the template
    job: int | None = None  # ranks of the whole job, of all its templates
    accelerators: int = 0  # requested by the container
    devices: Mapping[str, int] = {}  # extended resources requested that are no accelerators: name -> amount
    networks: int | None = None  # secondary networks the pod selects
    capabilities: frozenset[str] | None = None  # added; None where unknown (a bare nccl.conf)
    privileged: bool = False
    run_as_user: int | None = None  # effective uid where the manifest says one
    mounts: Mapping[str, str] = {}  # mount path -> kind of volume: "memory", "emptyDir", "hostPath", "downwardAPI", ...
    shared_memory: int | None = None  # bytes of the memory volume at /dev/shm; 0 unlimited; None: none is mounted
    image: str | None = None
    images: frozenset[str] = frozenset()  # of all the job's rank containers
    nccl: tuple[int, ...] | None = None  # NCCL's version in the image, where known: (2, 21, 5)

    def value(self, name: str) -> str | None:
        """What NCCL takes for a name: the first setting's text; None where unset or not known."""
        found = self.setting(name)
        return None if found is None else found.value

    def setting(self, name: str) -> Setting | None:
        """The setting of a name that wins."""
        for each in self.settings:
            if each.name == name:
                return each
        return None


class Finding(msgspec.Struct, frozen=True):
    """One thing a rule says: about which setting (`name` "" for the ranks as a whole), where, and what to do."""

    code: str
    severity: Severity
    name: str
    where: str
    message: str  # names the key, the value and the fix; one sentence or two


class Complaint(msgspec.Struct, frozen=True):
    """What a rule's check gives back; the engine adds the rule's code and severity."""

    message: str
    name: str = ""
    where: str = ""


class Example(msgspec.Struct, frozen=True):
    """Ranks a rule is silent on, or speaks about; shown in the documentation and run as tests."""

    title: str
    ranks: Ranks


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: `check` gives a complaint for each violation, in the order of the settings."""

    code: str  # N01
    name: str  # unknown-variable
    severity: Severity
    title: str  # one line
    explanation: str  # what happens and why, for the documentation
    source: str  # where the fact comes from
    good: tuple[Example, ...]
    bad: tuple[Example, ...]
    check: Callable[[Ranks], Iterable[Complaint]]
