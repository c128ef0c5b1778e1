"""Types of linting: the input of a rule, its findings, and the rule itself.

Each file in `rules/` has a rule, or those of one subject. `None` means unknown, and a rule that needs an unknown value
reports nothing.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from railwright.fabric.policy import model as policies


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


class FabricContext(msgspec.Struct, frozen=True):
    """The known properties of the fabric that the ranks use. Without a policy, most are None."""

    transport: policies.Transport | None = None
    fabric: policies.Fabric | None = None
    primary: str = "eth0"  # the pod's cluster network
    interfaces: tuple[str, ...] | None = None  # of the pod, primary first; None: those of the node
    rail_interfaces: tuple[str, ...] = ()  # the interfaces on secondary networks
    rails: tuple[str, ...] = ()  # names of those that the pod gets
    devices: tuple[tuple[str, ...], ...] | None = None  # RDMA device names, a tuple for each possible node type
    exclusive: bool | None = None  # True: devices are assigned to pods one by one, so their names are unknown
    rail_subnets: tuple[str, ...] | None = None  # CIDRs of the rails from the networks' IPAM


class RankContext(msgspec.Struct, frozen=True):
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
    node_labels: frozenset[str] = frozenset()  # keys by which the pod selects nodes
    own_names: frozenset[str] = frozenset()  # variables that the container's scripts read themselves
    mounts: Mapping[str, str] = {}  # mount path -> kind of volume: "memory", "emptyDir", "hostPath", "downwardAPI", ...
    shared_memory: int | None = None  # bytes of the memory volume at /dev/shm; 0: unlimited; None: no volume
    image: str | None = None
    images: frozenset[str] = frozenset()  # of all the job's rank containers
    nccl: tuple[int, ...] | None = None  # version of NCCL in the image, such as (2, 21, 5)

    def get_value(self, name: str) -> str | None:
        """Return the effective value of a name, or None if it is unset or unknown."""
        setting = self.get_setting(name)
        return None if setting is None else setting.value

    def get_setting(self, name: str) -> Setting | None:
        """Return the effective setting of a name, or None if it is unset."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        return None


class Finding(msgspec.Struct, frozen=True):
    """A reported violation of a rule. `name` is the setting, or "" if the finding is about the ranks as a whole."""

    code: str
    severity: Severity
    name: str
    where: str
    message: str  # one or two sentences with the key, the value and the fix


class Violation(msgspec.Struct, frozen=True):
    """A violation as a rule's check returns it. The engine adds the rule's code and severity."""

    message: str
    name: str = ""
    where: str = ""


class Example(msgspec.Struct, frozen=True):
    """Ranks that comply with a rule or violate it. The documentation shows them, and tests run them."""

    title: str
    context: RankContext


def build_example(
    title: str,
    settings: tuple[Setting, ...] = (),
    fabric_context: FabricContext = FabricContext(),  # noqa: B008 - frozen
    **fields: Any,
) -> Example:
    """Return an example of one rank. `fields` are those of RankContext."""
    return Example(title, RankContext("a rank", settings, fabric_context, **fields))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule. `check` returns each violation, in the order of the settings."""

    code: str  # N01
    name: str  # unknown-variable
    severity: Severity
    title: str  # one line
    explanation: str  # what happens and why, for the documentation
    source: str  # public source of the fact
    check: Callable[[RankContext], Iterable[Violation]]
    good: tuple[Example, ...] = ()  # or in tests/data/lint/examples.yaml
    bad: tuple[Example, ...] = ()
