"""Types and defaults of the policy document (docs/interface.md 2).

`schema` and `checks` decide whether a document is valid.
"""

import enum
import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import msgspec


class Transport(enum.StrEnum):
    """RDMA transport of a fabric. `tcp` has no RDMA and is for comparison runs."""

    ROCE = "roce"
    INFINIBAND = "infiniband"
    ERDMA = "erdma"
    PVRDMA = "pvrdma"
    EFA = "efa"
    TCP = "tcp"


GdrLevel = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"]
AddressFamily = Literal["AF_INET", "AF_INET6"]
Mode = Literal["enforce", "audit"]
DriverKind = Literal["dranet", "sriov", "sriov-multus", "other"]
T = TypeVar("T")


class Section(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Base of the document's mappings: keys are in camelCase, and unknown keys are errors."""


class SelectorRequirement(Section, frozen=True):
    """Expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Section, frozen=True):
    """Kubernetes label selector. If empty, it matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class RailClaim(Section, frozen=True):
    """Identity of a rail's devices among those of the DeviceClass. Exactly one key is set."""

    device_name: str | None = None
    pci_address: str | None = None
    value: str | int | None = None
    expression: str | None = None


class Rail(Section, frozen=True):
    """Independent path through the fabric, with a NIC on each node. Its position in the list is its number."""

    name: str
    network: str | None = None
    interface: str | None = None
    resource: str | None = None
    device: str | None = None
    claim: RailClaim | None = None


class Mounts(Section, frozen=True):
    """Mounts added to the target containers."""

    dev_infiniband: bool = False
    shared_memory: str | int | None = None


class Security(Section, frozen=True):
    """Privileges added to the target containers."""

    capabilities: tuple[str, ...] = ()
    privileged: bool = False


class Nccl(Section, frozen=True):
    """Properties of the fabric from which NCCL's environment is derived. If a key is unset, NCCL decides.

    Ranges are those of NCCL's variables (NCCL user guide, env.rst).
    """

    derive: bool = True
    delivery: Literal["env", "file", "both"] = "env"
    forbid_tcp_fallback: bool = False
    gid_index: int | None = None
    address_range: str | None = None
    address_range_includes_host: bool = False
    address_family: AddressFamily | None = None
    traffic_class: int | None = None
    fifo_traffic_class: int | None = None
    service_level: int | None = None
    rail_only: bool = False
    qps_per_connection: int | None = None
    adaptive_routing: bool | None = None
    timeout: int | None = None
    retry_count: int | None = None
    gdr_level: GdrLevel | None = None
    merge_vfs: bool | None = None
    topology_file: str | None = None
    debug: Literal["VERSION", "WARN", "INFO", "ABORT", "TRACE"] | None = None


class Preflight(Section, frozen=True):
    """Init container that checks the fabric before NCCL starts."""

    enabled: bool = False
    image: str = "railwright:latest"
    mtu: int | None = None
    on_failure: Literal["fail", "warn"] = "fail"


class Weights(Section, frozen=True):
    """Weights of the parts of a node's score. They are normalized before use."""

    locality: float = 60
    rails: float = 20
    numa: float = 15
    packing: float = 5


class Placement(Section, frozen=True):
    """Rules for choosing nodes for pods of a fabric."""

    rails: Literal["required", "preferred"] = "preferred"
    numa: Literal["required", "preferred", "ignore"] = "preferred"
    domains: tuple[str, ...] = ()
    oversubscription: tuple[float, ...] = ()
    uplinks: Literal["rail", "bundle"] | None = None
    preset: Literal["topograph", "topograph-legacy", "aws", "gke", "oci", "coreweave", "volcano"] | None = None
    weights: Weights = Weights()
    scale: float = 10


class ClaimedAccelerators(Section, frozen=True):
    """GPUs that come as claims."""

    device_class: str


class Claims(Section, frozen=True):
    """Rails that come as ResourceClaims (Dynamic Resource Allocation) instead of extended resources."""

    device_class: str
    driver: DriverKind = "dranet"
    driver_name: str | None = None
    rail_attribute: str | None = None
    accelerators: ClaimedAccelerators | None = None
    pair_by: str = "pcieRoot"
    parameters: dict[str, Any] = {}
    gang_rails: Literal["same", "any"] = "same"


class Fabric(Section, frozen=True):
    """RDMA network of the site."""

    transport: Transport
    mode: Mode | None = None
    namespaces: LabelSelector = LabelSelector()
    rails: tuple[Rail, ...] = ()
    claims: Claims | None = None
    rails_per_pod: Literal["all", "proportional"] = "all"
    gpus_per_node: int | None = None
    devices_per_rail: int = 1
    annotations: dict[str, str] = {}
    mounts: Mounts = Mounts()
    security: Security = Security()
    nccl: Nccl = Nccl()
    env: dict[str, str] = {}
    force_env: tuple[str, ...] = ()
    preflight: Preflight = Preflight()
    placement: Placement = Placement()


class NumaNode(Section, frozen=True):
    """GPUs and rails on a NUMA node."""

    node: int
    gpus: tuple[int, ...] = ()
    rails: tuple[str, ...] = ()


class NodeShape(Section, frozen=True):
    """Hardware of a node type. A node has the first shape with labels that all match."""

    name: str
    match: dict[str, str]
    devices: dict[str, str] = {}
    accelerators_of_rail: dict[str, tuple[str, ...]] = {}
    numa: tuple[NumaNode, ...] = ()


class Roles(Section, frozen=True):
    """Exceptions to the rule that a container gets the fabric if it requests an accelerator."""

    launchers: Literal["never", "inject-if-accelerated", "always"] = "inject-if-accelerated"
    volcano_tasks: dict[str, Literal["never", "always"]] = {}


class FabricPolicy(Section, frozen=True):
    """Policy document."""

    api_version: Literal["railwright.io/v1alpha1"]
    kind: Literal["FabricPolicy"]
    fabrics: dict[str, Fabric]
    mode: Mode = "enforce"
    default_fabric: str | None = None
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)
    primary_interface: str = "eth0"
    cluster_wide_networks: int = 0
    node_shapes: tuple[NodeShape, ...] = ()
    roles: Roles = Roles()


class Policy(msgspec.Struct, frozen=True, dict=True):
    """A valid document, and the digest that identifies it in injection records and metrics."""

    document: FabricPolicy
    digest: str  # "sha256:" and 64 hexadecimal digits, of the document's text

    @functools.cached_property
    def _compiled(self) -> dict[Callable[[FabricPolicy], object], object]:
        return {}

    def compile_once(self, build: Callable[[FabricPolicy], T]) -> T:
        """Return `build(document)`. It is built at most once for this version of the policy, and kept with it."""
        compiled = self._compiled
        if build not in compiled:
            compiled[build] = build(self.document)
        return cast("T", compiled[build])
