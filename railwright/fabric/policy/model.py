"""The policy document (docs/interface.md 2): every key with its type, range or form, default, meaning and an example.

The JSON Schema, and so the reference page and the errors of an invalid document, follow from the annotations. `checks`
has the rules about several keys.
"""

import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from railwright.fabric import label_selectors

T = TypeVar("T")


def describe(meaning: str, *example: object) -> msgspec.Meta:
    """Return the meaning of a key, and one example unless its value has keys of its own."""
    return msgspec.Meta(description=meaning, examples=list(example) or None)


def _form(pattern: str, phrase: str) -> msgspec.Meta:
    """Return the form of a text: the pattern of all of it, and the end of the message "VALUE is not ...".

    Python and ECMAScript interpret the patterns the same way. YAML language servers show `patternErrorMessage`.
    """
    return msgspec.Meta(pattern=rf"^{pattern}\Z", extra_json_schema={"patternErrorMessage": phrase})


# --- values ---------------------------------------------------------------------------------------------
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1123 label, as Kubernetes restricts it
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"  # the name part of a qualified name; a label value
_ATTRIBUTE = rf"{_SUBDOMAIN}/[A-Za-z_][A-Za-z0-9_]{{0,31}}"  # name of a device's attribute
_RAIL = r"\{rail\}"  # topology.RAIL, the placeholder for a rail's name

FabricName = Annotated[
    str, _form(_NAME, "a fabric name: a label value of at most 63 letters, digits, '-', '_' and '.'")
]
LabelKey = Annotated[str, _form(f"({_SUBDOMAIN}/)?{_NAME}", "a label key, such as topology.example.com/leaf")]
DomainKey = Annotated[
    str,
    _form(
        rf"({_SUBDOMAIN}/)?([A-Za-z0-9]|{_RAIL})(([A-Za-z0-9_.-]|{_RAIL}){{0,61}}([A-Za-z0-9]|{_RAIL}))?",
        "a label key, such as topology.example.com/leaf; its name may contain {rail} for the name of each rail, as in "
        "example.com/leaf-{rail}",
    ),
]
LabelValue = Annotated[str, _form(f"({_NAME})?", "a label value: at most 63 letters, digits, '-', '_' and '.'")]
AnnotationKey = Annotated[
    str, _form(f"({_SUBDOMAIN}/)?{_NAME}", "an annotation key, such as ipam.spidernet.io/ippools")
]
RailName = Annotated[str, _form(_LABEL, "a rail name: at most 63 lower-case letters, digits and '-', such as rail0")]
ShapeName = Annotated[str, _form(_NAME, "a shape name: at most 63 letters, digits, '-', '_' and '.', such as h100-8x4")]
TaskName = Annotated[str, _form(_LABEL, "a Volcano task name: at most 63 lower-case letters, digits and '-'")]
NetworkName = Annotated[
    str, _form(f"{_LABEL}/{_SUBDOMAIN}", "a NetworkAttachmentDefinition as namespace/name, such as prod/rdma-lan2")
]
# IFNAMSIZ and dev_valid_name() of the Linux kernel
InterfaceName = Annotated[
    str,
    _form(
        r"(?!\.{1,2}$)[^\s/:]{1,15}", "an interface name: 1 to 15 characters without spaces, '/' and ':', such as net1"
    ),
]
ResourceName = Annotated[
    str, _form(f"{_SUBDOMAIN}/{_NAME}", "an extended resource as domain/name, such as nvidia.com/mlx5_0")
]
# IB_DEVICE_NAME_MAX is 64 with its terminator; ',', ':', '=' and '^' are NCCL_IB_HCA syntax
DeviceName = Annotated[
    str,
    _form(
        "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "an RDMA device name as ibv_devices lists it, without port, such as mlx5_0"
    ),
]
CapabilityName = Annotated[
    str, _form("(?!CAP_)[A-Z][A-Z0-9_]*", "a capability in upper case without the prefix CAP_, such as IPC_LOCK")
]
# Names of environment variables that every supported Kubernetes release accepts
VariableName = Annotated[
    str, _form("[-._A-Za-z][-._A-Za-z0-9]*", "an environment variable name, such as NCCL_NET_GDR_READ")
]
VariablePattern = Annotated[
    str,
    _form("[-._A-Za-z][-._A-Za-z0-9]*[*]?", "an environment variable name, with * at the end for all that begin so"),
]
NetworkOfNccl = Annotated[str, _form("[!-~]([ -~]{0,61}[!-~])?", "the name of a network of NCCL, such as gIB")]
PluginName = Annotated[
    str, _form("[!-~]{1,255}", "none, or the name or path of a plugin as NCCL_NET_PLUGIN takes it, such as ofi")
]
VariableValue = Annotated[str, _form(r"[^\x00\r\n]*", "one line of text (NCCL reads its settings line by line)")]
AbsolutePath = Annotated[str, _form(r"/[^\x00-\x1f]*", "an absolute path in the container, such as /etc/nccl/topo.xml")]
# Kubernetes splits mounts at ':' and rejects '..' (validation.go, validateVolumeMounts and validatePathNoBacksteps)
MountPath = Annotated[
    str,
    _form(
        r"/(?!(.*/)?\.\.(/|$))[^\x00-\x1f:]{0,4094}",
        "an absolute path without ':' and '..', such as /usr/local/nvidia",
    ),
]
# Safe to write in a shell command without quotes
ScriptPath = Annotated[
    str, _form(r"(/[A-Za-z0-9_+][A-Za-z0-9_.+-]*)+", "an absolute path of letters, digits and '-_.+'")
]
ContainerName = Annotated[str, _form(_LABEL, "a container name: at most 63 lower-case letters, digits and '-'")]
ConfigMapName = Annotated[str, _form(_SUBDOMAIN, "the name of a ConfigMap, such as nvidia-topology")]
ConfigMapKey = Annotated[
    str,
    _form(r"(?!\.{1,2}$)[-._A-Za-z0-9]{1,253}", "a key of a ConfigMap, such as topo.xml"),
]
RuntimeClassName = Annotated[str, _form(_SUBDOMAIN, "the name of a RuntimeClass, such as nvidia")]
RequestName = Annotated[
    str,
    _form(
        rf"(hugepages-[1-9][0-9]*(Ki|Mi|Gi)|{_SUBDOMAIN}/{_NAME})",
        "huge pages or an extended resource, such as hugepages-2Mi or rdma/ib",
    ),
]
ImageName = Annotated[str, _form(r"[^\s]{1,255}", "a container image without spaces, such as railwright:latest")]
DeviceClassName = Annotated[str, _form(_SUBDOMAIN, "the name of a DeviceClass, such as dranet")]
DriverName = Annotated[
    str, _form(_SUBDOMAIN, "the name of a driver, as in spec.driver of its ResourceSlices, such as dra.net")
]
# resource.k8s.io/v1, QualifiedName: the name is a C identifier of at most 32 characters
AttributeName = Annotated[str, _form(_ATTRIBUTE, "a device attribute as domain/name, such as dra.net/rdmaDevice")]
Pairing = Annotated[
    str,
    _form(
        rf"(pcieRoot|numaNode|nodeShape|none|{_ATTRIBUTE})",
        "pcieRoot, numaNode, nodeShape, none, or a device attribute as domain/name, such as example.com/pair",
    ),
]
# resource.k8s.io/v1, DeviceAttribute: at most 64 characters
AttributeValue = Annotated[
    str,
    _form(r"[^\x00-\x1f\x7f]{1,64}", "the value of a device attribute: 1 to 64 characters in one line, such as mlx5_0"),
]
ClaimedDeviceName = Annotated[str, _form(_LABEL, "the name of a device in a ResourceSlice, such as pci-0000-20-1b-0")]
PciAddress = Annotated[
    str,
    _form(
        r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]",
        "a PCI address in lower case with its domain, such as 0000:20:1b.0",
    ),
]
NicName = Annotated[
    str,
    _form(
        "[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}",
        "a name of a NIC on its node without port: RDMA device, network interface or PCI address, such as mlx5_3",
    ),
]
ReportSource = Annotated[
    str, _form(f"({_SUBDOMAIN}/)?{_NAME}", "a source of reports: the type of a node condition, such as LinkFlaps")
]
# resource.k8s.io/v1, CELSelector: at most 10 Ki characters
CelExpression = Annotated[
    str,
    _form(r"[^\x00]{1,10240}", """a CEL expression over `device`, such as has(device.attributes["dra.net"].rdma)"""),
]

_MAX_COUNT = 1024  # above any hardware; rejects typing errors that would request a million devices
_MAX_FACTOR = 1_000_000  # larger weights and scales exceed every other score and lose float precision
Count = Annotated[int, msgspec.Meta(ge=1, le=_MAX_COUNT)]
Number = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)]
Weight = Annotated[float, msgspec.Meta(ge=0, le=_MAX_FACTOR)]
Byte = Annotated[int, msgspec.Meta(ge=-1, le=255)]  # -1 is NCCL's default, its own choice


class Transport(enum.StrEnum):
    """Transport of a fabric. `plugin` is known to a network plugin of NCCL only; `tcp` is for comparison runs."""

    ROCE = "roce"
    INFINIBAND = "infiniband"
    ERDMA = "erdma"
    PVRDMA = "pvrdma"
    EFA = "efa"
    PLUGIN = "plugin"
    TCP = "tcp"


GdrLevel = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"]
AddressFamily = Literal["AF_INET", "AF_INET6"]
Mode = Literal["enforce", "warn"]
DriverKind = Literal["dranet", "sriov", "sriov-multus", "other"]
Belief = Literal["ignore", "avoid", "exclude"]


# --- keys -----------------------------------------------------------------------------------------------


class Section(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Base of the document's mappings: keys are in camelCase, and unknown keys are errors."""


class SelectorRequirement(Section, frozen=True):
    """Expression of a label selector."""

    key: Annotated[LabelKey, describe("Key of the label.", "team")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        describe("Comparison of the label's value with `values`.", "In"),
    ]
    values: Annotated[
        tuple[LabelValue, ...],
        describe("Values for `In` and `NotIn`. Must be empty for `Exists` and `DoesNotExist`.", ["vision", "speech"]),
    ] = ()


class LabelSelector(Section, frozen=True):
    """Kubernetes label selector. If empty, it matches everything."""

    match_labels: Annotated[
        dict[LabelKey, LabelValue], describe("Labels that must all be present with these values.", {"team": "vision"})
    ] = {}
    match_expressions: Annotated[tuple[SelectorRequirement, ...], describe("Expressions that must all be true.")] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if all labels and expressions match."""
        return label_selectors.matches(self.match_labels, self.match_expressions, labels)


class RailClaim(Section, frozen=True):
    """Identity of a rail's devices among those of the DeviceClass. Exactly one key is set."""

    device_name: Annotated[
        ClaimedDeviceName | None,
        describe(
            "Name of the device in its ResourceSlice, such as `pci-0000-20-1b-0`. Only for dranet, whose names have "
            "the PCI address. Claims cannot select by other names.",
            "pci-0000-20-1b-0",
        ),
    ] = None
    pci_address: Annotated[PciAddress | None, describe("PCI address of the device.", "0000:20:1b.0")] = None
    value: Annotated[AttributeValue | int | None, describe("Value of the attribute `railAttribute`.", "pci0000:44")] = (
        None
    )
    expression: Annotated[
        CelExpression | None,
        describe(
            "CEL expression that is true for the rail's devices only. Test each attribute with has(): devices may "
            "lack it.",
            'has(device.attributes["dra.net"].rdma)',
        ),
    ] = None


class Rail(Section, frozen=True):
    """Independent path through the fabric, with a NIC on each node. Its position in the list is its number."""

    name: Annotated[RailName, describe("Name of the rail, unique in its fabric.", "rail0")]
    network: Annotated[
        NetworkName | None,
        describe(
            "NetworkAttachmentDefinition as namespace/name. If unset, the rail adds no interface (InfiniBand, eRDMA).",
            "prod/rdma-net-rail0",
        ),
    ] = None
    interface: Annotated[
        InterfaceName | None,
        describe("Name of the interface in the pod. If unset, Multus names it `net1`, `net2` and so on.", "net1"),
    ] = None
    resource: Annotated[
        ResourceName | None,
        describe(
            "Extended resource of the device plugin. If unset, the annotation `k8s.v1.cni.cncf.io/resourceName` of "
            "the network names it. Rails may share a resource.",
            "nvidia.com/mlx5_0",
        ),
    ] = None
    device: Annotated[
        DeviceName | None,
        describe(
            "Name of the RDMA device, as ibv_devices lists it. `nodeShapes` may override it. Leave unset for SR-IOV "
            "virtual functions: their names are assigned at run time.",
            "mlx5_0",
        ),
    ] = None
    nics: Annotated[
        tuple[NicName, ...],
        describe(
            "Names of the rail's NIC on the nodes, by which health reports mean it: RDMA device, network interface or "
            "PCI address. `device`, that of `nodeShapes`, and what ResourceSlices say need not be repeated.",
            ["mlx5_3", "ens3f0np0"],
        ),
        msgspec.Meta(max_length=64),
    ] = ()
    claim: Annotated[
        RailClaim | None,
        describe(
            "What identifies the rail's devices, if the rails come as claims. If unset, the attribute `railAttribute`"
            " of `claims` with `device` as value."
        ),
    ] = None

    @property
    def network_key(self) -> tuple[str, str] | None:
        """Return namespace and name of the NetworkAttachmentDefinition, None without one."""
        if self.network is None:
            return None
        namespace, _, name = self.network.partition("/")
        return namespace, name

    def list_devices(self, shapes: "Iterable[NodeShape]") -> tuple[str, ...]:
        """Return the names of the rail's RDMA device on nodes of all shapes, each once."""
        devices = (self.device, *(shape.devices.get(self.name) for shape in shapes))
        return tuple(dict.fromkeys(device for device in devices if device is not None))


class NetworkAnnotation(Section, frozen=True):
    """Annotation by which another system than Multus attaches the rails. Its value is a list in JSON.

    Items of the pod itself stay first.
    """

    key: Annotated[AnnotationKey, describe("Key of the annotation.", "networking.gke.io/interfaces")]
    item: Annotated[
        dict[str, Any],
        describe(
            "Item of a rail. In its texts, `{rail}` stands for the rail's name and `{interface}` for its `interface`.",
            {"interfaceName": "{interface}", "network": "{rail}"},
        ),
    ]
    first: Annotated[
        tuple[dict[str, Any], ...],
        describe("Items before those of the rails.", [{"interfaceName": "eth0", "network": "default"}]),
        msgspec.Meta(max_length=64),
    ] = ()


class LibraryPath(Section, frozen=True):
    """Directories at the end of LD_LIBRARY_PATH of the target containers."""

    directories: Annotated[
        tuple[MountPath, ...],
        describe("Directories that are added where they are missing.", ["/usr/local/nvidia/lib64"]),
        msgspec.Meta(min_length=1, max_length=64),
    ]
    if_unset: Annotated[
        Literal["leave", "set"],
        describe(
            "What containers get that do not set the variable. `leave`: nothing, because a value would hide that of "
            "the image. `set`: the directories.",
            "leave",
        ),
    ] = "leave"


class HostPath(Section, frozen=True):
    """Directory or file of the node that is mounted into the target containers."""

    path: Annotated[MountPath, describe("Path on the node.", "/home/kubernetes/bin/nvidia")]
    mount_path: Annotated[
        MountPath | None, describe("Path in the container. If unset, `path`.", "/usr/local/nvidia")
    ] = None
    read_only: Annotated[bool, describe("`false`: the container may write there.", True)] = True


class ConfigMapMount(Section, frozen=True):
    """ConfigMap that is mounted into the target containers, read-only."""

    name: Annotated[ConfigMapName, describe("Name of the ConfigMap.", "nvidia-topology")]
    mount_path: Annotated[
        MountPath,
        describe("Path in the container: of the file if `key` is set, otherwise of a directory.", "/etc/topo"),
    ]
    key: Annotated[
        ConfigMapKey | None,
        describe("Key that is mounted as a file. If unset, each key is a file in the directory.", "topo.xml"),
    ] = None


class Mounts(Section, frozen=True):
    """Mounts added to the target containers. A path where a container mounts something else is left unchanged."""

    dev_infiniband: Annotated[
        bool,
        describe("Mounts the host's /dev/infiniband. Needed only if no device plugin provides the devices.", False),
    ] = False
    shared_memory: Annotated[
        str | int | None,
        describe("Size of a memory volume at /dev/shm, such as `64Gi`. If unset, /dev/shm is not changed.", "64Gi"),
    ] = None
    host_paths: Annotated[
        tuple[HostPath, ...],
        describe("Directories and files of the node, such as libraries that the vendor installs there."),
        msgspec.Meta(max_length=64),
    ] = ()
    config_maps: Annotated[
        tuple[ConfigMapMount, ...],
        describe("ConfigMaps, such as one with topology files or NCCL's settings for the node type."),
        msgspec.Meta(max_length=64),
    ] = ()


class SourceScript(Section, frozen=True):
    """Script that a shell of the container sources before the container's own command, to set variables."""

    path: Annotated[ScriptPath, describe("Path in the container.", "/usr/local/gib/scripts/set_nccl_env.sh")]
    shell: Annotated[ScriptPath, describe("Path of the shell in the container.", "/bin/bash")] = "/bin/bash"


class ExecAction(Section, frozen=True):
    """Command of a probe."""

    command: Annotated[
        tuple[str, ...], describe("Program and arguments.", ["test", "-S", "/run/s"]), msgspec.Meta(min_length=1)
    ]


class TcpSocketAction(Section, frozen=True):
    """Port of a probe."""

    port: Annotated[Annotated[int, msgspec.Meta(ge=1, le=65535)], describe("Port that accepts connections.", 8080)]


class StartupProbe(Section, frozen=True):
    """Probe that succeeds once a sidecar is ready; the containers after it then start. One action is set."""

    exec_: Annotated[ExecAction | None, describe("Command that succeeds.")] = msgspec.field(default=None, name="exec")
    tcp_socket: Annotated[TcpSocketAction | None, describe("Port that accepts connections.")] = None
    period_seconds: Annotated[Count, describe("Time between two attempts, in seconds.", 1)] = 1
    failure_threshold: Annotated[Count, describe("Failed attempts after which the sidecar is restarted.", 120)] = 120


class Sidecar(Section, frozen=True):
    """Native sidecar: an init container that runs as long as the pod (Kubernetes 1.29 and newer)."""

    name: Annotated[ContainerName, describe("Name of the container.", "tcpxo-daemon")]
    image: Annotated[ImageName, describe("Image of the container.", "example.com/tcpxo-daemon:v1")]
    command: Annotated[tuple[str, ...], describe("Program. If unset, that of the image.", ["/entry.sh"])] = ()
    args: Annotated[tuple[str, ...], describe("Arguments.", ["--uid="])] = ()
    env: Annotated[
        dict[VariableName, VariableValue],
        describe("Environment variables.", {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}),
    ] = {}
    capabilities: Annotated[tuple[CapabilityName, ...], describe("Capabilities to add.", ["NET_ADMIN"])] = ()
    privileged: Annotated[bool, describe("Runs the container privileged.", False)] = False
    host_paths: Annotated[
        tuple[HostPath, ...], describe("Directories and files of the node."), msgspec.Meta(max_length=64)
    ] = ()
    startup_probe: Annotated[
        StartupProbe | None,
        describe("Probe that succeeds once the sidecar is ready. If unset, it is ready once started."),
    ] = None


class PodToleration(Section, frozen=True):
    """Toleration of a node taint."""

    key: Annotated[LabelKey, describe("Key of the taint.", "nvidia.com/gpu")]
    operator: Annotated[Literal["Exists", "Equal"], describe("`Equal`: the taint has this `value`.", "Exists")] = (
        "Exists"
    )
    value: Annotated[LabelValue | None, describe("Value of the taint, for `Equal`.", "present")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        describe("Effect of the taint. If unset, all effects.", "NoSchedule"),
    ] = None


class PodFields(Section, frozen=True):
    """Fields of `spec` for pods with rails. A value that the pod has itself is left unchanged."""

    host_network: Annotated[
        bool,
        describe(
            "`true`: the fabric is used in the node's network namespace. Interface names and address ranges of the "
            "policy are then those of the node. Rails have no `network`.",
            False,
        ),
    ] = False
    dns_policy: Annotated[
        Literal["ClusterFirstWithHostNet", "Default"] | None,
        describe(
            "DNS policy of pods with `ClusterFirst`, which the API server writes by default. If unset, "
            "`ClusterFirstWithHostNet` with `hostNetwork`, because cluster DNS is otherwise not used there.",
            "ClusterFirstWithHostNet",
        ),
    ] = None
    runtime_class_name: Annotated[RuntimeClassName | None, describe("RuntimeClass.", "nvidia")] = None
    tolerations: Annotated[
        tuple[PodToleration, ...],
        describe("Tolerations that are added to those of the pod."),
        msgspec.Meta(max_length=64),
    ] = ()


class Security(Section, frozen=True):
    """Privileges added to the target containers."""

    capabilities: Annotated[
        tuple[CapabilityName, ...],
        describe(
            "Capabilities to add, usually `IPC_LOCK`: RDMA pins memory, and without it memory registration fails.",
            ["IPC_LOCK"],
        ),
    ] = ()
    privileged: Annotated[
        bool,
        describe("Runs the containers privileged. Needed only if the devices are not accessible otherwise.", False),
    ] = False


class NcclPlugin(Section, frozen=True):
    """Network plugin of NCCL that carries the fabric's data."""

    network: Annotated[
        NetworkOfNccl | None,
        describe(
            "Name of the plugin's network, as NCCL_NET selects it. It is required with `forbidTcpFallback`.", "gIB"
        ),
    ] = None
    library: Annotated[
        PluginName | None,
        describe(
            "Value of NCCL_NET_PLUGIN. `none` keeps a plugin of the image out. If unset, the image decides.", "none"
        ),
    ] = None


class Nccl(Section, frozen=True):
    """Properties of the fabric from which NCCL's environment is derived. If a key is unset, NCCL decides.

    Ranges are those of NCCL's variables (NCCL user guide, env.rst).
    """

    derive: Annotated[bool, describe("`false`: no variables are derived; only `env` is set.", True)] = True
    delivery: Annotated[
        Literal["env", "file", "both"],
        describe(
            "Where the ranks find the settings: the container's environment, the file /etc/nccl.conf, or both. Ranks "
            "started by ssh always get the file.",
            "env",
        ),
    ] = "env"
    plugin: Annotated[NcclPlugin, describe("Network plugin of NCCL. Required for the transport `plugin`.")] = (
        NcclPlugin()
    )
    vendor_variables: Annotated[
        tuple[VariablePattern, ...],
        describe(
            "Variables that a plugin, a script or a settings file of the vendor sets, with `*` at the end for all that "
            "begin so. None of them is derived, and lint reports containers that set one.",
            ["NCCL_BUFFSIZE", "NCCL_FASTRAK_*"],
        ),
        msgspec.Meta(max_length=256),
    ] = ()
    forbid_tcp_fallback: Annotated[
        bool,
        describe(
            "`true`: sets NCCL_NET to the network of the fabric, such as IB, so that a job on a broken fabric fails "
            "instead of running slowly over TCP.",
            False,
        ),
    ] = False
    gid_index: Annotated[
        Byte | None, describe("Index in the RoCE GID table. If unset, NCCL chooses (2.21 and newer).", 3)
    ] = None
    address_range: Annotated[
        str | None,
        describe(
            "Address prefix that covers all rails, such as `192.168.0.0/16`. NCCL uses GIDs with addresses in it.",
            "192.168.0.0/16",
        ),
    ] = None
    address_range_includes_host: Annotated[
        bool,
        describe(
            "`true`: the nodes' own addresses on the rails are in `addressRange`, so that pods on the host network "
            "get it too. Otherwise NCCL would find no GID there.",
            False,
        ),
    ] = False
    address_family: Annotated[
        AddressFamily | None, describe("Address family of the GIDs. If unset, IPv4.", "AF_INET6")
    ] = None
    traffic_class: Annotated[
        Byte | None, describe("DSCP x 4 of the class that the switches treat as lossless.", 106)
    ] = None
    fifo_traffic_class: Annotated[
        Byte | None, describe("Traffic class of NCCL's small control messages. If unset, `trafficClass`.", 192)
    ] = None
    service_level: Annotated[
        Annotated[int, msgspec.Meta(ge=-1, le=15)] | None, describe("InfiniBand service level.", 1)
    ] = None
    rail_only: Annotated[
        bool, describe("`true`: different rails cannot reach each other (NCCL_CROSS_NIC=0).", False)
    ] = False
    qps_per_connection: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=128)] | None,
        describe("Queue pairs for each connection. 2 to 8 spread flows over more paths of a routed fabric.", 4),
    ] = None
    adaptive_routing: Annotated[
        bool | None, describe("Whether the fabric routes adaptively. If unset, NCCL decides by the transport.", True)
    ] = None
    timeout: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=31)] | None,
        describe("N of the time 4.096 us x 2^N after which a packet is considered lost.", 23),
    ] = None
    retry_count: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=7)] | None,
        describe("Number of times that a lost packet is sent again.", 7),
    ] = None
    gdr_level: Annotated[GdrLevel | None, describe("Largest distance between GPU and NIC for GPUDirect.", "SYS")] = None
    merge_vfs: Annotated[
        bool | None, describe("`false`: NCCL does not merge virtual functions of one card into one NIC.", False)
    ] = None
    topology_file: Annotated[
        AbsolutePath | None, describe("Path of an XML topology file in the container.", "/etc/nccl/topo.xml")
    ] = None
    debug: Annotated[
        Literal["VERSION", "WARN", "INFO", "ABORT", "TRACE"] | None, describe("Log level of NCCL.", "WARN")
    ] = None

    def is_of_vendor(self, name: str) -> bool:
        """True if the policy leaves a variable to the vendor's plugin, script or settings file."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.vendor_variables
        )


class Preflight(Section, frozen=True):
    """Init container that checks the fabric before NCCL starts."""

    enabled: Annotated[bool, describe("Adds the init container.", False)] = False
    image: Annotated[ImageName, describe("Image of the init container.", "railwright:latest")] = "railwright:latest"
    mtu: Annotated[
        Annotated[int, msgspec.Meta(ge=68, le=65535)] | None,
        describe("Smallest allowed MTU of the rails' interfaces, in bytes. If unset, it is not checked.", 4200),
    ] = None
    on_failure: Annotated[
        Literal["fail", "warn"],
        describe("`fail`: a rail that is not ready stops the pod. `warn`: it is only logged.", "fail"),
    ] = "fail"


class Weights(Section, frozen=True):
    """Weights of the parts of a node's score. They are normalized before use."""

    locality: Annotated[Weight, describe("Weight of few leaves and neighbouring ranks on the same leaf.", 60)] = 60
    rails: Annotated[Weight, describe("Weight of free rails.", 20)] = 20
    numa: Annotated[Weight, describe("Weight of rails on the NUMA nodes of their GPUs.", 15)] = 15
    packing: Annotated[Weight, describe("Weight of filling partly used nodes first, so that idle nodes remain.", 5)] = 5


class Placement(Section, frozen=True):
    """Rules for choosing nodes for pods of a fabric."""

    rails: Annotated[
        Literal["required", "preferred"],
        describe(
            "`required`: nodes without a free device for each requested rail are filtered out. `preferred`: they "
            "score lower.",
            "preferred",
        ),
    ] = "preferred"
    numa: Annotated[
        Literal["required", "preferred", "ignore"],
        describe(
            "Whether rails must or should be on the NUMA nodes of the requested GPUs. Unless it is `ignore`, nodes "
            "are filtered out if their kubelet would certainly reject the pod (TopologyAffinityError).",
            "preferred",
        ),
    ] = "preferred"
    domains: Annotated[
        tuple[DomainKey, ...],
        describe(
            "Keys of the node labels that name leaf, spine and so on, closest first. If unset, those of `preset`. "
            "`{rail}` in a key stands for the name of each rail, as in `example.com/leaf-{rail}`, if each rail has "
            "its own leaf.",
            ["example.com/leaf", "example.com/spine"],
        ),
    ] = ()
    oversubscription: Annotated[
        tuple[Annotated[float, msgspec.Meta(ge=1, le=_MAX_FACTOR)], ...],
        describe(
            "Ratio of downlink to uplink bandwidth of each domain, closest first, such as `[1, 7]`. If unset, 1.",
            [1, 7],
        ),
    ] = ()
    uplinks: Annotated[
        Literal["rail", "bundle"] | None,
        describe(
            "`rail`: each rail has its own uplinks, as in rail-optimized fabrics. `bundle`: all rails of a node share"
            " the uplinks of their switch, as with top-of-rack switches. A gang that uses half the rails then has "
            "twice the bandwidth for each. If unset, `rail` if `domains` contains `{rail}`, otherwise `bundle`.",
            "rail",
        ),
    ] = None
    preset: Annotated[
        Literal["topograph", "topograph-legacy", "aws", "gke", "oci", "coreweave", "volcano"] | None,
        describe("Well-known node labels to use as `domains`. `volcano` reads HyperNode objects instead.", "topograph"),
    ] = None
    gang_topology: Annotated[
        Literal["off", "preferred", "required"],
        describe(
            "Whether railwright asks the scheduler to keep a gang in one domain, by the field or annotation that this "
            "scheduler reads, when the workload is created. `required`: by a hard constraint, at the lowest level of "
            "`domains` with a domain that can hold the gang, otherwise by none. `preferred`: by a soft one, and by none"
            " where the scheduler has only hard ones. Quote `off`, which YAML 1.1 reads as false.",
            "required",
        ),
    ] = "off"
    gang_topology_levels: Annotated[
        tuple[LabelKey, ...],
        describe(
            "Keys of `domains` that `gangTopology` may ask for. If unset, all that are keys of one node label.",
            ["example.com/leaf"],
        ),
    ] = ()
    goal: Annotated[
        Literal["bandwidth", "capacity"],
        describe(
            "What counts first for pods that take a part of a node. `bandwidth`: the modelled bandwidth of each gang, "
            "so that pods take idle nodes rather than share NICs. `capacity`: idle nodes stay free for pods that need "
            "whole ones, so that pods share NICs and span NUMA nodes rather than take an idle node. Uplinks, broken "
            "rails and the number of leaves count before idle nodes in both.",
            "capacity",
        ),
    ] = "bandwidth"
    weights: Annotated[Weights, describe("Weight of each part of a node's score. Only the ratios matter.")] = Weights()
    scale: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=_MAX_FACTOR)],
        describe("Factor of the score for Volcano, which adds the scores of its plugins without normalizing.", 10),
    ] = 10


class ClaimedAccelerators(Section, frozen=True):
    """GPUs that come as claims."""

    device_class: Annotated[DeviceClassName, describe("DeviceClass of the GPUs.", "gpu.nvidia.com")]


class Claims(Section, frozen=True):
    """Rails that come as ResourceClaims (Dynamic Resource Allocation) instead of extended resources."""

    device_class: Annotated[DeviceClassName, describe("DeviceClass of the NICs.", "dranet.net")]
    driver: Annotated[
        DriverKind,
        describe(
            "Driver of the NICs. It sets the driver's name, the default of `railAttribute`, and the form of the "
            "driver's configuration. `dranet`: kubernetes-sigs/dranet, also GKE's managed one. `sriov`, `sriov-"
            "multus`: dra-driver-sriov in its modes STANDALONE and MULTUS. `other`: described by `driverName` and "
            "`railAttribute`.",
            "dranet",
        ),
    ] = "dranet"
    driver_name: Annotated[
        DriverName | None,
        describe("Name of the driver in its ResourceSlices. Required for `other`, otherwise known.", "nic.example.com"),
    ] = None
    rail_attribute: Annotated[
        AttributeName | None,
        describe(
            "Device attribute whose value identifies a rail. If unset, `dra.net/rdmaDevice` for dranet and "
            "`k8s.cni.cncf.io/resourceName` for dra-driver-sriov. dranet 1.4 and older publish `dra.net/rdmaDevice` "
            "only for devices without a network interface. Drivers withdraw `dra.net/ifName` and addresses while a "
            "pod holds the device.",
            "resource.kubernetes.io/pcieRoot",
        ),
    ] = None
    accelerators: Annotated[
        ClaimedAccelerators | None,
        describe(
            "The GPUs come in the same claims, and are removed from the requests of containers. They count as the "
            "first of `accelerators`. If unset, they are extended resources."
        ),
    ] = None
    pair_by: Annotated[
        Pairing,
        describe(
            "What pairs a GPU with its NIC: the attribute `resource.kubernetes.io/pcieRoot` or "
            "`resource.kubernetes.io/numaNode` that both have, another attribute that both have, `acceleratorsOfRail`"
            " of `nodeShapes` (`nodeShape`), or nothing (`none`). Needs `accelerators`.",
            "nodeShape",
        ),
    ] = "pcieRoot"
    parameters: Annotated[
        dict[str, Any],
        describe(
            "Configuration of the driver for each rail, beside the interface's name. For dranet, keys of `interface`,"
            " such as `mtu`, or whole sections, such as `ethtool`.",
            {"mtu": 9000},
        ),
    ] = {}
    gang_rails: Annotated[
        Literal["same", "any"],
        describe(
            "`same`: all pods of a gang get one set of rails, and wait until it is free. `any`: each pod may get "
            "another.",
            "same",
        ),
    ] = "same"


class NvLink(Section, frozen=True):
    """NVLink domains: GPUs of several nodes that NVLink connects, such as those of a GB200 NVL72 rack."""

    domain: Annotated[
        LabelKey,
        describe(
            "Label whose value names the NVLink domain of a node. It must be the first of `placement.domains`.",
            "nvidia.com/gpu.clique",
        ),
    ] = "nvidia.com/gpu.clique"
    segment: Annotated[
        Count | None,
        describe(
            "Number of consecutive ranks of a gang that are placed in one NVLink domain or not at all, such as those "
            "of a tensor or expert parallel group. Nodes of domains that cannot hold the rest of a pod's segment are "
            "filtered out. The annotation `railwright.io/segment` of a pod overrides it. If unset, a gang gets the "
            "fewest NVLink domains, however its ranks divide.",
            16,
        ),
    ] = None
    required: Annotated[
        bool,
        describe(
            "`true`: sets NCCL_MNNVL_ENABLE=1, so that a gang whose NVLink domain does not work fails instead of using "
            "the rails between its nodes.",
            False,
        ),
    ] = False


class Fabric(Section, frozen=True):
    """RDMA network of the site."""

    transport: Annotated[
        Transport,
        describe(
            "Transport of the fabric. `plugin`: no RDMA devices; a network plugin of NCCL uses the interfaces of the "
            "rails. `tcp` has no rails and restricts NCCL to sockets, for comparison runs. `pvrdma` has one rail.",
            "roce",
        ),
    ]
    mode: Annotated[
        Mode | None, describe("`enforce` or `warn` for this fabric. If unset, that of the policy.", "warn")
    ] = None
    namespaces: Annotated[LabelSelector, describe("Namespaces that may use this fabric. If empty, all may.")] = (
        LabelSelector()
    )
    rails: Annotated[
        tuple[Rail, ...], describe("Rails of the fabric. The position is the rail's number. Required except for `tcp`.")
    ] = ()
    claims: Annotated[
        Claims | None,
        describe(
            "The rails come as ResourceClaims (Dynamic Resource Allocation). If unset, they are extended resources."
        ),
    ] = None
    nvlink: Annotated[
        NvLink | None, describe("The nodes have NVLink domains. If unset, NVLink stays inside of a node.")
    ] = None
    rails_per_pod: Annotated[
        Literal["all", "proportional"],
        describe(
            "Number of rails that a pod gets. `proportional`: its GPUs x rails / `gpusPerNode`, rounded up. All pods "
            "of a gang get the same rails.",
            "all",
        ),
    ] = "all"
    gpus_per_node: Annotated[
        Count | None,
        describe("Number of GPUs of a node. Required for `proportional`, and if claims pair GPUs with rails.", 8),
    ] = None
    devices_per_rail: Annotated[Count, describe("Number of devices requested for each rail.", 1)] = 1
    device_scope: Annotated[
        Literal["rail", "pod"],
        describe(
            "What a device of `resource` gives. `rail`: one rail. `pod`: all rails with that resource, which the pod "
            "requests once, as from a plugin of shared devices.",
            "pod",
        ),
    ] = "rail"
    resources: Annotated[
        dict[RequestName, str | int],
        describe(
            "Resources beside those of the rails that each target container requests, unless it names them itself, "
            "such as huge pages.",
            {"hugepages-2Mi": "5120Mi"},
        ),
        msgspec.Meta(max_length=64),
    ] = {}
    primary_interface: Annotated[
        InterfaceName | None,
        describe(
            "Interface of NCCL's bootstrap and control traffic in this fabric, if it is another than "
            "`primaryInterface` of the policy. It may be the interface of a rail.",
            "net1",
        ),
    ] = None
    pod: Annotated[PodFields, describe("Fields of `spec` for pods with rails.")] = PodFields()
    network_annotation: Annotated[
        NetworkAnnotation | None,
        describe("Annotation by which another system than Multus attaches the rails. They have no `network` then."),
    ] = None
    library_path: Annotated[
        LibraryPath | None, describe("Directories at the end of LD_LIBRARY_PATH of the target containers.")
    ] = None
    annotations: Annotated[
        dict[AnnotationKey, str],
        describe(
            "Annotations added to the pods that do not have them, such as IPAM pools.",
            {"ipam.example.com/pool": "rails"},
        ),
    ] = {}
    mounts: Annotated[Mounts, describe("Mounts added to the target containers.")] = Mounts()
    security: Annotated[Security, describe("Privileges added to the target containers.")] = Security()
    nccl: Annotated[Nccl, describe("Properties of the fabric. NCCL's environment is derived from them.")] = Nccl()
    env: Annotated[
        dict[VariableName, VariableValue],
        describe(
            "Environment variables. They override derived values; the pod's own values override both. Quote numbers.",
            {"NCCL_NET_GDR_READ": "1"},
        ),
    ] = {}
    force_env: Annotated[
        tuple[VariableName, ...],
        describe("Variables of `env` that override the pod's own values, with a warning.", ["NCCL_DEBUG"]),
    ] = ()
    source_script: Annotated[
        SourceScript | None,
        describe("Script that a shell sources before the command of each target container, which must have one."),
    ] = None
    sidecars: Annotated[
        tuple[Sidecar, ...],
        describe("Native sidecars that are added to pods with rails, such as a daemon of the vendor."),
        msgspec.Meta(max_length=64),
    ] = ()
    whole_node: Annotated[
        bool,
        describe(
            "`true`: rejects pods that request fewer accelerators than `gpusPerNode`. For sidecars and plugins that "
            "serve one pod on a node.",
            False,
        ),
    ] = False
    preflight: Annotated[Preflight, describe("Init container that checks the fabric before NCCL starts.")] = Preflight()
    placement: Annotated[Placement, describe("Rules for choosing the nodes of pods and gangs.")] = Placement()

    def count_devices(self, rails: int) -> int:
        """Return the devices of one resource that a pod requests for a number of rails."""
        return self.devices_per_rail * (rails if self.device_scope == "rail" else min(rails, 1))

    def count_rails(self, devices: int, rails: int) -> int:
        """Return how many of the rails of one resource a number of its devices gives."""
        given = -(-devices // self.devices_per_rail)
        return min(rails, given) if self.device_scope == "rail" or not given else rails


class NumaNode(Section, frozen=True):
    """GPUs and rails on a NUMA node."""

    node: Annotated[Number, describe("Number of the NUMA node.", 0)]
    gpus: Annotated[tuple[Number, ...], describe("Indexes of the GPUs on the NUMA node.", [0, 1, 2, 3])] = ()
    rails: Annotated[tuple[str, ...], describe("Names of the rails on the NUMA node.", ["rail0", "rail1"])] = ()


class NodeShape(Section, frozen=True):
    """Hardware of a node type. A node has the first shape with labels that all match."""

    name: Annotated[ShapeName, describe("Name of the shape, unique.", "h100-8x4")]
    match: Annotated[
        dict[LabelKey, LabelValue],
        describe(
            "Node labels that must all be present with these values.",
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        ),
    ]
    devices: Annotated[
        dict[str, DeviceName],
        describe(
            "RDMA device of each rail on this hardware, by rail name.",
            {"rail0": "mlx5_0", "rail1": "mlx5_1"},
        ),
    ] = {}
    accelerators_of_rail: Annotated[
        dict[RailName, Annotated[tuple[PciAddress, ...], msgspec.Meta(min_length=1)]],
        describe(
            "PCI bus IDs of the GPUs beside each rail, by rail name, for `claims.pairBy: nodeShape`.",
            {"rail0": ["0008:06:00.0"], "rail1": ["0009:06:00.0"]},
        ),
    ] = {}
    numa: Annotated[tuple[NumaNode, ...], describe("GPUs and rails of each NUMA node.")] = ()
    topology_file: Annotated[
        AbsolutePath | None,
        describe(
            "Path of the XML topology file of this hardware in the container, instead of `nccl.topologyFile`. Pods "
            "that may run on shapes with different files get none, with a warning.",
            "/etc/topo/ndv5-topo.xml",
        ),
    ] = None


class Roles(Section, frozen=True):
    """Exceptions to the rule that a container gets the fabric if it requests an accelerator."""

    launchers: Annotated[
        Literal["never", "inject-if-accelerated", "always"],
        describe("Whether launchers, such as that of an MPIJob, get the fabric.", "inject-if-accelerated"),
    ] = "inject-if-accelerated"
    volcano_tasks: Annotated[
        dict[TaskName, Literal["never", "always"]],
        describe("Whether the pods of a Volcano task get the fabric, by task name.", {"launcher": "never"}),
    ] = {}


class Health(Section, frozen=True):
    """Reports that a rail of a node does not work."""

    reports: Annotated[
        dict[ReportSource, Belief],
        describe(
            "What a report does to the rail, by its source: the type of a node condition, whose status `True` means a "
            "fault and whose message names NICs; or `DeviceUnhealthy`, `DeviceTainted`, `DeviceMissing`, `LinkDown` "
            "or `PreflightFailed`. `exclude`: new pods are placed as if the node did not have the rail. `avoid`: the "
            "rail counts half, so that others are used first. `ignore`: the report is only shown. Sources that are not "
            "named: `exclude` for the state checks of NVSentinel's NIC monitor (`InfiniBandStateCheck`, "
            "`EthernetStateCheck`, `EFAStateCheck`), `avoid` for its other checks and for the five sources above. "
            "Other node conditions do not count.",
            {"InfiniBandCharDeviceCheck": "ignore"},
        ),
        msgspec.Meta(max_length=64),
    ] = {}
    hold_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=86_400)],
        describe(
            "Seconds for which a report still counts after it has ended. Doubled each time that the report comes back "
            "within `maxHoldSeconds`.",
            60,
        ),
    ] = 60
    max_hold_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=86_400)],
        describe("Largest number of seconds for which a report that has ended still counts.", 1800),
    ] = 1800


class PolicyDocument(Section, frozen=True):
    """Policy document."""

    api_version: Annotated[
        Literal["railwright.io/v1alpha1"], describe("Always `railwright.io/v1alpha1`.", "railwright.io/v1alpha1")
    ]
    fabrics: Annotated[
        dict[FabricName, Fabric],
        describe("Fabrics by name. Users set the name in the label `railwright.io/fabric`."),
        msgspec.Meta(min_length=1),
    ]
    mode: Annotated[
        Mode,
        describe(
            "`warn`: pods and templates are neither changed nor rejected. Warnings, Events and metrics say what would "
            "have been done.",
            "enforce",
        ),
    ] = "enforce"
    default_fabric: Annotated[
        str | None,
        describe(
            "Fabric that the label value `default` selects. If unset, pods with the value `default` are rejected.",
            "roce",
        ),
    ] = None
    accelerators: Annotated[
        tuple[ResourceName, ...],
        describe(
            "Resources of accelerators. A container that requests one is a training container.", ["nvidia.com/gpu"]
        ),
        msgspec.Meta(min_length=1),
    ] = ("nvidia.com/gpu",)
    primary_interface: Annotated[
        InterfaceName,
        describe("Interface of the pod on the cluster network. NCCL's bootstrap and control traffic use it.", "eth0"),
    ] = "eth0"
    cluster_wide_networks: Annotated[
        Number,
        describe(
            "Number of networks that Multus attaches to every pod before the pod's own. The names `netN` of the pod's"
            " own networks count from there.",
            0,
        ),
    ] = 0
    node_shapes: Annotated[
        tuple[NodeShape, ...],
        describe("Hardware of each node type. A node has the first shape with labels that all match."),
    ] = ()
    roles: Annotated[
        Roles, describe("Exceptions to the rule that a container gets the fabric if it requests an accelerator.")
    ] = Roles()
    health: Annotated[Health, describe("Reports that a rail of a node does not work, and what follows from them.")] = (
        Health()
    )
    kind: Annotated[
        str | None,
        describe("Ignored, with the warning `PolicyKindIgnored`. Remove it.", "FabricPolicy"),
        msgspec.Meta(extra_json_schema={"deprecated": True}),
    ] = None


def find_primary_interface(document: PolicyDocument, fabric: Fabric) -> str:
    """Return the interface of NCCL's bootstrap in a fabric."""
    return fabric.primary_interface or document.primary_interface


class Policy(msgspec.Struct, frozen=True, dict=True):
    """A valid document, and the digest that identifies it in injection records and metrics."""

    document: PolicyDocument
    digest: str  # "sha256:" and 64 hexadecimal digits, of the document's text

    @functools.cached_property
    def _compiled(self) -> dict[Callable[[PolicyDocument], object], object]:
        return {}

    def compile_once(self, build: Callable[[PolicyDocument], T]) -> T:
        """Return `build(document)`. It is built at most once for this version of the policy, and kept with it."""
        compiled = self._compiled
        if build not in compiled:
            compiled[build] = build(self.document)
        return cast("T", compiled[build])


def find_shape(shapes: Iterable[NodeShape], labels: Mapping[str, str]) -> NodeShape | None:
    """Return the first shape with `match` labels that are all in `labels`, or None."""
    return next((shape for shape in shapes if label_selectors.has_all(shape.match, labels)), None)
