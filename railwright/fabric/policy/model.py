"""The policy document of CONTRACT section 2 as frozen values, and the vocabulary of its enumerations.

Owns names, types and defaults. Knows no YAML, no line numbers and no cluster; whether a document is
acceptable is decided by `schema` and `checks` beside this file.
"""

import enum
from typing import Literal

import msgspec


class Transport(enum.StrEnum):
    """How a fabric carries RDMA; `tcp` carries none and is there for comparison runs."""

    ROCE = "roce"
    INFINIBAND = "infiniband"
    ERDMA = "erdma"
    PVRDMA = "pvrdma"
    EFA = "efa"
    TCP = "tcp"


GdrLevel = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"]
AddressFamily = Literal["AF_INET", "AF_INET6"]


class Section(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Base of every mapping in the document: camelCase keys, unknown keys are errors."""


class SelectorRequirement(Section, frozen=True):
    """One expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Section, frozen=True):
    """A Kubernetes label selector; empty selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class Rail(Section, frozen=True):
    """One independent path through the fabric; its position in the list is its number."""

    name: str
    network: str | None = None
    interface: str | None = None
    resource: str | None = None
    device: str | None = None


class Mounts(Section, frozen=True):
    """What is mounted into the chosen containers."""

    dev_infiniband: bool = False
    shared_memory: str | int | None = None


class Security(Section, frozen=True):
    """What the chosen containers are granted."""

    capabilities: tuple[str, ...] = ()
    privileged: bool = False


class Nccl(Section, frozen=True):
    """Facts about the fabric from which NCCL's environment is derived; absent = NCCL's own choice.

    Ranges are those of NCCL's variables (knowledge: variables.json, user guide env.rst).
    """

    derive: bool = True
    delivery: Literal["env", "file", "both"] = "env"
    forbid_tcp_fallback: bool = False
    gid_index: int | None = None
    address_range: str | None = None
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
    """The init container that checks the fabric before NCCL starts."""

    enabled: bool = False
    image: str = "railwright:latest"
    mtu: int | None = None
    on_failure: Literal["fail", "warn"] = "fail"


class Weights(Section, frozen=True):
    """What each score term counts; normalised before use."""

    locality: float = 60
    rails: float = 20
    numa: float = 15
    packing: float = 5


class Placement(Section, frozen=True):
    """How nodes are chosen for pods of a fabric."""

    rails: Literal["required", "preferred"] = "preferred"
    numa: Literal["required", "preferred", "ignore"] = "preferred"
    domains: tuple[str, ...] = ()
    oversubscription: tuple[float, ...] = ()
    uplinks: Literal["rail", "bundle"] | None = None
    preset: Literal["topograph", "topograph-legacy", "aws", "gke", "oci", "coreweave", "volcano"] | None = None
    weights: Weights = Weights()
    scale: float = 10


class Fabric(Section, frozen=True):
    """One RDMA network of the site."""

    transport: Transport
    namespaces: LabelSelector = LabelSelector()
    rails: tuple[Rail, ...] = ()
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
    """Which GPUs and rails hang off one NUMA node."""

    node: int
    gpus: tuple[int, ...] = ()
    rails: tuple[str, ...] = ()


class NodeShape(Section, frozen=True):
    """The hardware of one node type; the first shape whose labels match a node wins."""

    name: str
    match: dict[str, str]
    devices: dict[str, str] = {}
    numa: tuple[NumaNode, ...] = ()


class Roles(Section, frozen=True):
    """Refinements of the rule "a container that requests an accelerator gets the fabric"."""

    launchers: Literal["never", "inject-if-accelerated", "always"] = "inject-if-accelerated"
    volcano_tasks: dict[str, Literal["never", "always"]] = {}


class FabricPolicy(Section, frozen=True):
    """The whole document."""

    api_version: Literal["railwright.io/v1alpha1"]
    kind: Literal["FabricPolicy"]
    fabrics: dict[str, Fabric]
    default_fabric: str | None = None
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)
    primary_interface: str = "eth0"
    cluster_wide_networks: int = 0
    node_shapes: tuple[NodeShape, ...] = ()
    roles: Roles = Roles()


class Policy(msgspec.Struct, frozen=True):
    """An accepted document and the digest that names this version of it in records and metrics."""

    document: FabricPolicy
    digest: str  # "sha256:" and 64 hex digits over the document's text
