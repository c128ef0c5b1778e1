"""The policy document (docs/interface.md 2): the type, allowed values, default, meaning and example of every key.

The JSON Schema, and so the reference page and the errors of an invalid document, follow from the annotations. `checks`
has the rules about several keys.
"""

import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, Literal, TypeVar, cast

import msgspec

from railwright.fabric import label_selectors, names
from railwright.fabric.claims import objects

T = TypeVar("T")


def describe_key(meaning: str, *example: object) -> msgspec.Meta:
    """Return the annotation of a key: its meaning and, if its value is no mapping of keys, an example."""
    return msgspec.Meta(description=meaning, examples=list(example) or None)


def _match_text(pattern: str, phrase: str) -> msgspec.Meta:
    """Return the msgspec.Meta of a text: its pattern, and the `phrase` that ends the error "VALUE is not ...".

    Python and ECMAScript interpret the patterns the same way. YAML language servers show `patternErrorMessage`.
    """
    return msgspec.Meta(pattern=rf"^{pattern}\Z", extra_json_schema={"patternErrorMessage": phrase})


# --- values ---------------------------------------------------------------------------------------------
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1123 label, as Kubernetes restricts it
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"  # the name part of a qualified name; a label value
_ATTRIBUTE = rf"{_SUBDOMAIN}/[A-Za-z_][A-Za-z0-9_]{{0,31}}"  # name of a device's attribute
_RAIL = r"\{rail\}"  # topology.RAIL, the placeholder for a rail's name

# the label values `default` and `none` are not names of fabrics
FabricName = Annotated[
    str,
    _match_text(
        f"(?!({names.FABRIC_DEFAULT}|{names.FABRIC_NONE})$){_NAME}",
        "a fabric name: at most 63 letters, digits, '-', '_' and '.', other than default and none, which are reserved",
    ),
]
LabelKey = Annotated[str, _match_text(f"({_SUBDOMAIN}/)?{_NAME}", "a label key, such as topology.example.com/leaf")]
DomainKey = Annotated[
    str,
    _match_text(
        rf"({_SUBDOMAIN}/)?([A-Za-z0-9]|{_RAIL})(([A-Za-z0-9_.-]|{_RAIL}){{0,61}}([A-Za-z0-9]|{_RAIL}))?",
        "a label key, such as topology.example.com/leaf; its name may contain {rail} for the name of each rail, as in "
        "example.com/leaf-{rail}",
    ),
]
LabelValue = Annotated[str, _match_text(f"({_NAME})?", "a label value: at most 63 letters, digits, '-', '_' and '.'")]
AnnotationKey = Annotated[
    str,
    _match_text(
        rf"(?!{re.escape(names.DOMAIN)}/|{re.escape(names.NETWORKS)}$)({_SUBDOMAIN}/)?{_NAME}",
        "an annotation key of another system, such as ipam.spidernet.io/ippools: railwright sets those of "
        f"{names.DOMAIN}, and {names.NETWORKS} from the `network` of the rails",
    ),
]
# a number in the annotation railwright.io/rails is a count
RailName = Annotated[
    str,
    _match_text(
        f"(?![0-9]+$){_LABEL}",
        "a rail name: at most 63 lower-case letters, digits and '-', not only digits, such as rail0",
    ),
]
ShapeName = Annotated[
    str, _match_text(_NAME, "a shape name: at most 63 letters, digits, '-', '_' and '.', such as h100-8x4")
]
NetworkName = Annotated[
    str,
    _match_text(f"{_LABEL}/{_SUBDOMAIN}", "a NetworkAttachmentDefinition as namespace/name, such as prod/rdma-lan2"),
]
# IFNAMSIZ and dev_valid_name() of the Linux kernel
InterfaceName = Annotated[
    str,
    _match_text(
        r"(?!(\.{1,2}|lo)$)[^\s/:]{1,15}",
        "an interface name: 1 to 15 characters without spaces, '/' and ':', other than lo, such as net1",
    ),
]
# Kubernetes' IsExtendedResourceName: domains of kubernetes.io and the prefix `requests.` are its own
_RESOURCE = rf"(?!([a-z0-9.-]+\.)?kubernetes\.io/|requests\.){_SUBDOMAIN}/{_NAME}"
ResourceName = Annotated[
    str,
    _match_text(_RESOURCE, "an extended resource (domain/name outside kubernetes.io, such as nvidia.com/mlx5_0)"),
]
# IB_DEVICE_NAME_MAX is 64 with its terminator; ',', ':', '=' and '^' are NCCL_IB_HCA syntax
DeviceName = Annotated[
    str,
    _match_text(
        "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "an RDMA device name as ibv_devices lists it, without port, such as mlx5_0"
    ),
]
# capabilities(7), and ALL of Kubernetes: a container with another one does not start
_CAPABILITIES = (
    "ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH "
    "FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN "
    "NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT "
    "SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM"
)
CapabilityName = Annotated[
    str,
    _match_text(
        f"({'|'.join(_CAPABILITIES.split())})",
        "a capability of Linux (capabilities(7)) in upper case without the prefix CAP_, such as IPC_LOCK",
    ),
]
# Names of environment variables that every supported Kubernetes release accepts
VariableName = Annotated[
    str, _match_text("[-._A-Za-z][-._A-Za-z0-9]*", "an environment variable name, such as NCCL_NET_GDR_READ")
]
VariablePattern = Annotated[
    str,
    _match_text("[-._A-Za-z][-._A-Za-z0-9]*[*]?", "an environment variable name, or a prefix that ends with *"),
]
AddressPrefix = Annotated[
    str, _match_text("[0-9A-Fa-f.:]+/[0-9]{1,3}", "an address prefix, such as 192.168.0.0/16 or fd00::/8")
]
NetworkOfNccl = Annotated[str, _match_text("[!-~]([ -~]{0,61}[!-~])?", "the name of a network of NCCL, such as gIB")]
VariableValue = Annotated[str, _match_text(r"[^\x00\r\n]*", "one line of text (NCCL reads its settings line by line)")]
# Kubernetes splits mounts at ':' and rejects '..' (validation.go, validateVolumeMounts and validatePathNoBacksteps)
MountPath = Annotated[
    str,
    _match_text(
        r"/(?!(.*/)?\.\.(/|$))[^\x00-\x1f:]{0,4094}",
        "an absolute path without ':' and '..', such as /usr/local/nvidia",
    ),
]
# Safe to write in a shell command without quotes
ScriptPath = Annotated[
    str, _match_text(r"(/[A-Za-z0-9_+][A-Za-z0-9_.+-]*)+", "an absolute path of letters, digits and '-_.+'")
]
ConfigMapName = Annotated[str, _match_text(_SUBDOMAIN, "the name of a ConfigMap, such as nvidia-topology")]
RequestName = Annotated[
    str,
    _match_text(
        rf"(hugepages-[1-9][0-9]*(Ki|Mi|Gi)|{_RESOURCE})",
        "huge pages such as hugepages-2Mi, or an extended resource outside kubernetes.io such as rdma/ib",
    ),
]
ImageName = Annotated[str, _match_text(r"[^\s]{1,255}", "a container image without spaces, such as railwright:latest")]
SchedulerName = Annotated[str, _match_text(_SUBDOMAIN, "the name of a scheduler, such as railwright-scheduler")]
DeviceClassName = Annotated[str, _match_text(_SUBDOMAIN, "the name of a DeviceClass, such as dranet")]
# resource.k8s.io/v1, QualifiedName: the name is a C identifier of at most 32 characters
AttributeName = Annotated[str, _match_text(_ATTRIBUTE, "a device attribute as domain/name, such as dra.net/rdmaDevice")]
Pairing = Annotated[
    str,
    _match_text(
        rf"(pcieRoot|numaNode|none|{_ATTRIBUTE})",
        "pcieRoot, numaNode, none, or a device attribute as domain/name, such as example.com/pair",
    ),
]
# resource.k8s.io/v1, DeviceAttribute: at most 64 characters
AttributeValue = Annotated[
    str,
    _match_text(
        r"[^\x00-\x1f\x7f]{1,64}",
        "the value of a device attribute: 1 to 64 characters in one line, such as mlx5_0, or a number of 64 bits",
    ),
]
AttributeNumber = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_MAX_COUNT = 1024  # above any hardware; rejects typing errors that would request a million devices
_MAX_FACTOR = 1_000_000  # larger ratios lose float precision
Count = Annotated[int, msgspec.Meta(ge=1, le=_MAX_COUNT)]
Number = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
Byte = Annotated[int, msgspec.Meta(ge=-1, le=255)]  # -1 is NCCL's default, its own choice


class Transport(enum.StrEnum):
    """Transport of a fabric. `plugin`: a network plugin of NCCL implements it. `tcp` is for comparison runs."""

    ROCE = "roce"
    INFINIBAND = "infiniband"
    ERDMA = "erdma"
    PVRDMA = "pvrdma"
    EFA = "efa"
    PLUGIN = "plugin"
    TCP = "tcp"


WARN: Final = "warn"
Mode = Literal["enforce", "warn"]


# --- keys -----------------------------------------------------------------------------------------------


class Section(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Base class of mappings in the document: keys are in camelCase, and unknown keys are errors."""


class Rail(Section, frozen=True):
    """Independent path through the fabric, with a NIC on each node. Its position in the list is its number."""

    name: Annotated[RailName, describe_key("Name of the rail, unique in its fabric.", "rail0")]
    network: Annotated[
        NetworkName | None,
        describe_key(
            "NetworkAttachmentDefinition as namespace/name. If unset, the rail adds no interface (InfiniBand, eRDMA). "
            "A rail has a network, a resource, both, or neither (PVRDMA).",
            "prod/rdma-net-rail0",
        ),
    ] = None
    interface: Annotated[
        InterfaceName | None,
        describe_key("Name of the interface in the pod. If unset, Multus names it `net1`, `net2` and so on.", "net1"),
    ] = None
    resource: Annotated[
        ResourceName | None,
        describe_key(
            "Extended resource of the device plugin. If unset, the annotation `k8s.v1.cni.cncf.io/resourceName` of "
            "the network names it. Rails may share a resource.",
            "nvidia.com/mlx5_0",
        ),
    ] = None
    device: Annotated[
        DeviceName | None,
        describe_key(
            "Name of the RDMA device, as ibv_devices lists it, if it is the same on every node. `nodeShapes` may "
            "override it. If unset, it is found in the pod (`resolve`).",
            "mlx5_0",
        ),
    ] = None
    claim: Annotated[
        AttributeValue | AttributeNumber | None,
        describe_key(
            "Value of the device attribute `claims.railAttribute` by which a claim selects the rail's devices. Only "
            "with `claims`. If unset, the value of `device`.",
            "pci0000:44",
        ),
    ] = None

    @property
    def network_key(self) -> tuple[str, str] | None:
        """Namespace and name of the rail's NetworkAttachmentDefinition; None if it has none."""
        if self.network is None:
            return None
        namespace, _, name = self.network.partition("/")
        return namespace, name


class Mounts(Section, frozen=True):
    """Mounts added to the target containers, except at paths where a container has a mount already."""

    dev_infiniband: Annotated[
        bool,
        describe_key("Mounts the host's /dev/infiniband. Needed only if no device plugin provides the devices.", False),
    ] = False
    shared_memory: Annotated[
        str | int | None,
        describe_key(
            "Size of a memory volume at /dev/shm, such as `64Gi`. What containers write there counts as their memory, "
            "up to their memory limit. If unset, /dev/shm is not changed.",
            "64Gi",
        ),
    ] = None
    host_paths: Annotated[
        dict[MountPath, MountPath],
        describe_key(
            "Directories and files of the node by their path in the container, such as libraries that the vendor "
            "installs there. They are read-only.",
            {"/usr/local/nvidia": "/home/kubernetes/bin/nvidia"},
        ),
        msgspec.Meta(max_length=64),
    ] = {}
    config_maps: Annotated[
        dict[MountPath, ConfigMapName],
        describe_key(
            "ConfigMaps by their directory in the container, in which each key is a file, such as one with topology "
            "files or NCCL's settings for the node type.",
            {"/opt/nvidia-topology": "nvidia-topology"},
        ),
        msgspec.Meta(max_length=64),
    ] = {}


class Security(Section, frozen=True):
    """Privileges added to the target containers."""

    capabilities: Annotated[
        tuple[CapabilityName, ...],
        describe_key(
            "Capabilities to add, usually `IPC_LOCK`: RDMA pins memory, and without it memory registration fails.",
            ["IPC_LOCK"],
        ),
    ] = ()
    privileged: Annotated[
        bool,
        describe_key("Runs the containers privileged. Needed only if the devices are not accessible otherwise.", False),
    ] = False


class Nccl(Section, frozen=True):
    """Properties of the fabric from which NCCL's environment is derived. If a key is unset, NCCL chooses.

    The allowed ranges are those of NCCL's variables (NCCL user guide, env.rst).
    """

    derive: Annotated[bool, describe_key("`false`: no variables are derived; only `env` is set.", True)] = True
    plugin: Annotated[
        NetworkOfNccl | None,
        describe_key(
            "Network of the plugin that carries the fabric's data, as NCCL_NET selects it. Required for the transport "
            "`plugin`. With `forbidTcpFallback` NCCL_NET is set to it.",
            "gIB",
        ),
    ] = None
    vendor_variables: Annotated[
        tuple[VariablePattern, ...],
        describe_key(
            "Variables that a plugin, a script or a settings file of the vendor sets. A name that ends with `*` is a "
            "prefix. None of them is derived, and lint reports containers that set one.",
            ["NCCL_BUFFSIZE", "NCCL_FASTRAK_*"],
        ),
        msgspec.Meta(max_length=256),
    ] = ()
    forbid_tcp_fallback: Annotated[
        bool,
        describe_key(
            "`true`: sets NCCL_NET to the network of the fabric, such as IB, so that a job on a broken fabric fails "
            "instead of running slowly over TCP.",
            False,
        ),
    ] = False
    gid_index: Annotated[
        Byte | None,
        describe_key(
            "Index in the RoCE GID table, if it is the same in every pod. If unset, it is found in the pod.", 3
        ),
    ] = None
    address_range: Annotated[
        AddressPrefix | None,
        describe_key(
            "Address prefix that covers all rails, such as `192.168.0.0/16` or `fd00::/8`. NCCL uses GIDs with "
            "addresses in it.",
            "192.168.0.0/16",
        ),
    ] = None
    traffic_class: Annotated[
        Byte | None,
        describe_key("Traffic class of RDMA packets: DSCP x 4 of the class that is lossless on the switches.", 106),
    ] = None

    def is_set_by_vendor(self, name: str) -> bool:
        """True if `vendorVariables` has the variable: the vendor's plugin, script or settings file sets it."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.vendor_variables
        )


class Preflight(Section, frozen=True):
    """Init container that finds and checks the rails of a pod before its other containers start."""

    image: Annotated[
        ImageName | None,
        describe_key("Image of the init container. If unset, the image of the webhook.", "railwright:latest"),
    ] = None
    mtu: Annotated[
        Annotated[int, msgspec.Meta(ge=68, le=65535)] | None,
        describe_key("Smallest allowed MTU of the rails' interfaces, in bytes. If unset, it is not checked.", 4200),
    ] = None
    on_failure: Annotated[
        Literal["fail", "warn"],
        describe_key("`fail`: a rail that is not ready stops the pod. `warn`: it is only logged.", "fail"),
    ] = "fail"


class Placement(Section, frozen=True):
    """Rules for choosing nodes for pods of a fabric."""

    domains: Annotated[
        tuple[DomainKey, ...],
        describe_key(
            "Keys of the node labels that name leaf, spine and so on, closest first. If unset, those of `preset`. "
            "`{rail}` in a key stands for the name of each rail, as in `example.com/leaf-{rail}`, if each rail has "
            "its own leaf.",
            ["example.com/leaf", "example.com/spine"],
        ),
    ] = ()
    oversubscription: Annotated[
        tuple[Annotated[float, msgspec.Meta(ge=1, le=_MAX_FACTOR)], ...],
        describe_key(
            "Ratio of downlink to uplink bandwidth of each domain, closest first, such as `[1, 7]`. If unset, 1.",
            [1, 7],
        ),
    ] = ()
    preset: Annotated[
        Literal["topograph", "topograph-legacy", "aws", "gke", "oci", "coreweave", "volcano"] | None,
        describe_key(
            "Well-known node labels to use as `domains`. `volcano` reads HyperNode objects instead.", "topograph"
        ),
    ] = None
    gang_topology: Annotated[
        Literal["off", "preferred", "required"],
        describe_key(
            "Whether railwright asks Kueue or Volcano, when a workload is created, to keep its gang in one domain. "
            "`required`: a hard constraint to one domain of the last key of `domains`. `preferred`: a soft constraint "
            "to one domain of the first key. Keys with `{rail}` are skipped. For Kueue the keys have to be node "
            "labels, for Volcano levels of HyperNodes. Write `off` in quotes: YAML 1.1 reads it as false otherwise.",
            "required",
        ),
    ] = "off"
    scheduler_name: Annotated[
        SchedulerName | None,
        describe_key(
            "Scheduler that places the fabric's pods, such as the one that the chart installs (`scheduler.enabled`). "
            "Admission sets it where a pod names no scheduler, or `default-scheduler`. If unset, pods keep theirs.",
            "railwright-scheduler",
        ),
    ] = None


class Claims(Section, frozen=True):
    """Rails requested by ResourceClaims (Dynamic Resource Allocation) instead of extended resources."""

    device_class: Annotated[
        DeviceClassName,
        describe_key("DeviceClass of the NICs. Their driver is dranet, such as GKE's managed one.", "dranet.net"),
    ]
    rail_attribute: Annotated[
        AttributeName,
        describe_key(
            "Device attribute whose value identifies a rail. dranet 1.4 and older publish `dra.net/rdmaDevice` only "
            "for devices without a network interface. dranet withdraws `dra.net/ifName` and addresses while a pod "
            "holds the device.",
            "resource.kubernetes.io/pcieRoot",
        ),
    ] = objects.RDMA_DEVICE
    accelerator_class: Annotated[
        DeviceClassName | None,
        describe_key(
            "DeviceClass of the GPUs, which then come in the same claims and are removed from the requests of "
            "containers. They count as the first of `accelerators`. If unset, they are extended resources.",
            "gpu.nvidia.com",
        ),
    ] = None
    pair_by: Annotated[
        Pairing,
        describe_key(
            "What pairs a GPU with its NIC: the attribute `resource.kubernetes.io/pcieRoot` or "
            "`resource.kubernetes.io/numaNode` that both have, another attribute that both have, or nothing (`none`)."
            " Needs `acceleratorClass`.",
            "numaNode",
        ),
    ] = "pcieRoot"


class Fabric(Section, frozen=True):
    """RDMA network of the site: its rails, what pods get, and where they run."""

    transport: Annotated[
        Transport,
        describe_key(
            "Transport of the fabric. `plugin`: no RDMA devices; a network plugin of NCCL uses the interfaces of the "
            "rails. `tcp` has no rails and restricts NCCL to sockets, for comparison runs. `pvrdma` has one rail.",
            "roce",
        ),
    ]
    namespaces: Annotated[
        dict[LabelKey, LabelValue],
        describe_key(
            "Labels that a namespace must all have with these values for its pods to use this fabric. If empty, all "
            "namespaces may.",
            {"team": "vision"},
        ),
    ] = {}
    rails: Annotated[
        tuple[Rail, ...],
        describe_key("Rails of the fabric. The position is the rail's number. Required except for `tcp`."),
    ] = ()
    claims: Annotated[
        Claims | None,
        describe_key(
            "The rails come as ResourceClaims (Dynamic Resource Allocation). If unset, they are extended resources."
        ),
    ] = None
    nvlink_segment: Annotated[
        Count | None,
        describe_key(
            "Number of consecutive ranks of a gang, such as an expert parallel group, that are placed in one NVLink "
            "domain or not at all. The first of `placement.domains` names the domain of a node, such as "
            "nvidia.com/gpu.clique. Nodes outside of the domain of a pod's segment are refused. `1`: a gang gets the "
            "fewest NVLink domains, however its ranks divide. The annotation `railwright.io/segment` of a pod "
            "overrides it. If unset, NVLink stays inside of a node.",
            16,
        ),
    ] = None
    accelerators: Annotated[
        Annotated[tuple[ResourceName, ...], msgspec.Meta(max_length=0)] | None,
        describe_key(
            "`[]`: containers get the rails also without an accelerator, except launchers and heads. MPI jobs on CPUs "
            "need this. If unset, a container needs one of the policy's `accelerators`.",
            [],
        ),
    ] = None
    rails_per_pod: Annotated[
        Literal["all", "proportional"] | None,
        describe_key(
            "Number of rails that a pod gets. `proportional`: its GPUs x rails / `gpusPerNode`, rounded up. All pods "
            "of a gang get the same rails, unless these come as claims. If unset, a pod gets all rails, with one "
            "exception: a pod that its namespace opted in gets rails in proportion to its GPUs if all rails would take "
            "all devices of a node. The capacity of the nodes that have the resources of all rails decides this; if "
            "there is no such node, the pod gets all rails. Set `railsPerPod` if the number must not depend on nodes.",
            "all",
        ),
    ] = None
    gpus_per_node: Annotated[
        Count | None,
        describe_key("Number of GPUs of a node. Required for `proportional`, and if claims pair GPUs with rails.", 8),
    ] = None
    devices_per_rail: Annotated[Count, describe_key("Number of devices requested for each rail.", 1)] = 1
    device_scope: Annotated[
        Literal["rail", "pod"],
        describe_key(
            "What a device of `resource` gives. `rail`: one rail. `pod`: all rails with that resource, which the pod "
            "requests once, as from a plugin of shared devices.",
            "pod",
        ),
    ] = "rail"
    resources: Annotated[
        dict[RequestName, str | int],
        describe_key(
            "Resources beside those of the rails that each target container requests, unless it names them itself, "
            "such as huge pages.",
            {"hugepages-2Mi": "5120Mi"},
        ),
        msgspec.Meta(max_length=64),
    ] = {}
    primary_interface: Annotated[
        InterfaceName,
        describe_key(
            "Interface of NCCL's bootstrap and control traffic. `eth0` is that of the cluster network. It may be the "
            "interface of a rail.",
            "net1",
        ),
    ] = "eth0"
    host_network: Annotated[
        bool,
        describe_key(
            "`true`: the fabric is used in the node's network namespace, so its pods get `hostNetwork`, and the DNS "
            "policy `ClusterFirstWithHostNet` unless they set one. Interface names and address ranges of the policy "
            "are then those of the node. Rails have no `network`.",
            False,
        ),
    ] = False
    library_path: Annotated[
        tuple[MountPath, ...],
        describe_key(
            "Directories that are added to the end of LD_LIBRARY_PATH of the target containers where they are missing. "
            "A container without the variable gets it, which hides the value of its image.",
            ["/usr/local/nvidia/lib64"],
        ),
        msgspec.Meta(max_length=64),
    ] = ()
    annotations: Annotated[
        dict[AnnotationKey, str],
        describe_key(
            "Annotations added to the pods that do not have them, such as IPAM pools, or the list by which another "
            "system than Multus attaches the rails, which then have an `interface` and no `network`.",
            {"ipam.example.com/pool": "rails"},
        ),
    ] = {}
    mounts: Annotated[Mounts, describe_key("Mounts added to the target containers.")] = Mounts()
    security: Annotated[Security, describe_key("Privileges added to the target containers.")] = Security()
    nccl: Annotated[Nccl, describe_key("Properties of the fabric. NCCL's environment is derived from them.")] = Nccl()
    env: Annotated[
        dict[VariableName, VariableValue],
        describe_key(
            "Environment variables. They override derived values; the pod's own values override both. Quote numbers.",
            {"NCCL_NET_GDR_READ": "1"},
        ),
        msgspec.Meta(max_length=256),
    ] = {}
    source_script: Annotated[
        ScriptPath | None,
        describe_key(
            "Path of a script that /bin/bash sources before the command of each target container, which must have one.",
            "/usr/local/gib/scripts/set_nccl_env.sh",
        ),
    ] = None
    resolve: Annotated[
        Literal["auto", "always", "never"],
        describe_key(
            "Whether an init container finds and checks devices, GID indexes and interfaces of the rails in each pod. "
            "`auto`: only if the policy does not state all that a library needs (the `device` of each rail; on RoCE, "
            "eRDMA and PVRDMA also `gidIndex`). `always`: also then. `never`: only what the policy states is set.",
            "auto",
        ),
    ] = "auto"
    delivery: Annotated[
        Literal["auto", "files"],
        describe_key(
            "How ranks get the values that are found in the pod. `auto`: by their environment (`fileKeyRef`) if the "
            "API server and every node of the fabric are Kubernetes 1.35 or newer, otherwise by files. `files`: by "
            "nccl.conf and ucx.conf, which reach NCCL and UCX only.",
            "auto",
        ),
    ] = "auto"
    preflight: Annotated[
        Preflight, describe_key("Init container that finds and checks the rails, where `resolve` adds it.")
    ] = Preflight()
    placement: Annotated[Placement, describe_key("Rules for choosing the nodes of pods and gangs.")] = Placement()

    @property
    def has_isolated_rails(self) -> bool:
        """True if different rails cannot reach each other: `env` has NCCL_CROSS_NIC=0."""
        return self.env.get("NCCL_CROSS_NIC") == "0"

    def allows_namespace(self, labels: Mapping[str, str]) -> bool:
        """True if the pods of a namespace with these labels may use the fabric."""
        return label_selectors.has_all_labels(self.namespaces, labels)

    def count_devices(self, rails: int) -> int:
        """Return how many devices of a resource a pod requests for this number of rails with the resource."""
        return self.devices_per_rail * (rails if self.device_scope == "rail" else min(rails, 1))

    def count_rails(self, devices: int, rails: int) -> int:
        """Return how many of a resource's `rails` rails a pod has, if it has `devices` devices of the resource."""
        given = -(-devices // self.devices_per_rail)
        return min(rails, given) if self.device_scope == "rail" or not given else rails


class NumaNode(Section, frozen=True):
    """GPUs and rails that are attached to a NUMA node."""

    gpus: Annotated[tuple[Number, ...], describe_key("Indexes of the GPUs on the NUMA node.", [0, 1, 2, 3])] = ()
    rails: Annotated[tuple[str, ...], describe_key("Names of the rails on the NUMA node.", ["rail0", "rail1"])] = ()


class NodeShape(Section, frozen=True):
    """Hardware of a node type. A node has the first shape whose `match` labels are all on the node."""

    name: Annotated[ShapeName, describe_key("Name of the shape, unique.", "h100-8x4")]
    match: Annotated[
        dict[LabelKey, LabelValue],
        describe_key(
            "Node labels that must all be present with these values.",
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        ),
    ]
    devices: Annotated[
        dict[str, DeviceName],
        describe_key(
            "RDMA device of each rail on this hardware, by rail name. If unset, it is found in the pod.",
            {"rail0": "mlx5_0", "rail1": "mlx5_1"},
        ),
    ] = {}
    numa: Annotated[
        tuple[NumaNode, ...], describe_key("GPUs and rails of each NUMA node, in the order of their numbers.")
    ] = ()


class PolicyDocument(Section, frozen=True):
    """The policy: the fabrics of the cluster, and facts about its accelerators and nodes."""

    api_version: Annotated[
        Literal["railwright.io/v1alpha1"], describe_key("Always `railwright.io/v1alpha1`.", "railwright.io/v1alpha1")
    ]
    fabrics: Annotated[
        dict[FabricName, Fabric],
        describe_key("Fabrics by name. Users set the name in the label `railwright.io/fabric`."),
        msgspec.Meta(min_length=1),
    ]
    mode: Annotated[
        Mode,
        describe_key(
            "`warn`: pods and templates are neither changed nor rejected. Warnings, Events and metrics say what would "
            "have been done.",
            "enforce",
        ),
    ] = "enforce"
    default_fabric: Annotated[
        str | None,
        describe_key(
            "Fabric that the label value `default` selects. If unset, pods with the value `default` are rejected.",
            "roce",
        ),
    ] = None
    accelerators: Annotated[
        tuple[ResourceName, ...],
        describe_key(
            "Resources of accelerators. A container that requests one is a training container.", ["nvidia.com/gpu"]
        ),
        msgspec.Meta(min_length=1),
    ] = ("nvidia.com/gpu",)
    accelerator_units: Annotated[
        dict[ResourceName, Count],
        describe_key(
            "Number of units of a resource that make one accelerator, by resource, if a unit is a share of one, such "
            "as a MIG slice or 1/100 in Koordinator. For resources that are not named, 1. Used for `proportional` and "
            "`gpusPerNode`.",
            {"koordinator.sh/gpu": 100},
        ),
    ] = {}
    node_shapes: Annotated[
        tuple[NodeShape, ...],
        describe_key(
            "Hardware of each node type. A node has the first shape whose `match` labels are all on the node."
        ),
        msgspec.Meta(max_length=256),
    ] = ()

    @property
    def is_enforced(self) -> bool:
        """True unless the mode is `warn`."""
        return self.mode != WARN

    def resolve_fabric_name(self, label: str) -> str:
        """Return the fabric's name for a label value. For `default`, it is `defaultFabric`, or "" if that is unset."""
        return label if label != names.FABRIC_DEFAULT else self.default_fabric or ""

    @property
    def has_claims(self) -> bool:
        """True if the policy has a fabric whose rails pods request by claims."""
        return any(fabric.claims is not None for fabric in self.fabrics.values())

    @property
    def needs_claim_templates(self) -> bool:
        """True if pods claim the rails of a fabric, or the channels of its NVLink domains."""
        return self.has_claims or any(fabric.nvlink_segment is not None for fabric in self.fabrics.values())


class Policy(msgspec.Struct, frozen=True, dict=True):
    """Valid policy document, and its digest, by which injection records and metrics name this version."""

    document: PolicyDocument
    digest: str  # "sha256:" and 64 hexadecimal digits, of the document's text

    @functools.cached_property
    def _compiled(self) -> dict[Callable[[PolicyDocument], object], object]:
        return {}

    def compile_once(self, build: Callable[[PolicyDocument], T]) -> T:
        """Return `build(document)`, which is called at most once for this version of the policy."""
        compiled = self._compiled
        if build not in compiled:
            compiled[build] = build(self.document)
        return cast("T", compiled[build])


def find_shape(shapes: Iterable[NodeShape], labels: Mapping[str, str]) -> NodeShape | None:
    """Return the first shape whose `match` labels are all in the labels of a node, or None."""
    return next((shape for shape in shapes if label_selectors.has_all_labels(shape.match, labels)), None)
