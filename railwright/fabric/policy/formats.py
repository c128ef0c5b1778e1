"""Text formats of policy values: a pattern for the schema and a phrase for messages.

`schema` assigns formats to keys. Patterns match the entire text and use only syntax that Python and ECMAScript
interpret the same way.
"""

import dataclasses

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1123 label, as Kubernetes restricts it
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"  # the name part of a qualified name; a label value

_ATTRIBUTE = rf"{_SUBDOMAIN}/[A-Za-z_][A-Za-z0-9_]{{0,31}}"  # name of a device's attribute

_RAIL = r"\{rail\}"  # topology.RAIL, the placeholder for a rail's name


@dataclasses.dataclass(frozen=True)
class Format:
    """A pattern, and the phrase that completes the message "VALUE is not ..."."""

    pattern: str
    phrase: str


FABRIC_NAME = Format(f"^{_NAME}$", "a fabric name: a label value of at most 63 letters, digits, '-', '_' and '.'")
LABEL_KEY = Format(f"^({_SUBDOMAIN}/)?{_NAME}$", "a label key, such as topology.example.com/leaf")
DOMAIN_KEY = Format(
    rf"^({_SUBDOMAIN}/)?([A-Za-z0-9]|{_RAIL})(([A-Za-z0-9_.-]|{_RAIL}){{0,61}}([A-Za-z0-9]|{_RAIL}))?$",
    "a label key, such as topology.example.com/leaf; its name may contain {rail} for the name of each rail, as in "
    "example.com/leaf-{rail}",
)
LABEL_VALUE = Format(f"^({_NAME})?$", "a label value: at most 63 letters, digits, '-', '_' and '.'")
ANNOTATION_KEY = Format(f"^({_SUBDOMAIN}/)?{_NAME}$", "an annotation key, such as ipam.spidernet.io/ippools")
RAIL_NAME = Format(f"^{_LABEL}$", "a rail name: at most 63 lower-case letters, digits and '-', such as rail0")
SHAPE_NAME = Format(f"^{_NAME}$", "a shape name: at most 63 letters, digits, '-', '_' and '.', such as h100-8x4")
TASK_NAME = Format(f"^{_LABEL}$", "a Volcano task name: at most 63 lower-case letters, digits and '-'")
NETWORK = Format(
    f"^{_LABEL}/{_SUBDOMAIN}$",
    "a NetworkAttachmentDefinition as namespace/name, such as prod/rdma-lan2",
)
INTERFACE = Format(  # IFNAMSIZ and dev_valid_name() of the Linux kernel
    r"^(?!\.{1,2}$)[^\s/:]{1,15}$",
    "an interface name: 1 to 15 characters without spaces, '/' and ':', such as net1",
)
RESOURCE = Format(f"^{_SUBDOMAIN}/{_NAME}$", "an extended resource as domain/name, such as nvidia.com/mlx5_0")
DEVICE = Format(  # IB_DEVICE_NAME_MAX is 64 with its terminator; ',', ':', '=' and '^' are NCCL_IB_HCA syntax
    "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
    "an RDMA device name as ibv_devices lists it, without port, such as mlx5_0",
)
CAPABILITY = Format("^(?!CAP_)[A-Z][A-Z0-9_]*$", "a capability in upper case without the prefix CAP_, such as IPC_LOCK")
ENV_NAME = Format(  # names of environment variables that every supported Kubernetes release accepts
    "^[-._A-Za-z][-._A-Za-z0-9]*$", "an environment variable name, such as NCCL_NET_GDR_READ"
)
ENV_VALUE = Format(r"^[^\x00\r\n]*$", "one line of text (NCCL reads its settings line by line)")
ABSOLUTE_PATH = Format(r"^/[^\x00-\x1f]*$", "an absolute path in the container, such as /etc/nccl/topo.xml")
IMAGE = Format(r"^[^\s]{1,255}$", "a container image without spaces, such as railwright:latest")
DEVICE_CLASS = Format(f"^{_SUBDOMAIN}$", "the name of a DeviceClass, such as dranet")
DRIVER = Format(f"^{_SUBDOMAIN}$", "the name of a driver, as in spec.driver of its ResourceSlices, such as dra.net")
ATTRIBUTE = Format(  # resource.k8s.io/v1, QualifiedName: the name is a C identifier of at most 32 characters
    rf"^{_ATTRIBUTE}$", "a device attribute as domain/name, such as dra.net/rdmaDevice"
)
PAIR_BY = Format(
    rf"^(pcieRoot|numaNode|nodeShape|none|{_ATTRIBUTE})$",
    "pcieRoot, numaNode, nodeShape, none, or a device attribute as domain/name, such as example.com/pair",
)
ATTRIBUTE_VALUE = Format(  # resource.k8s.io/v1, DeviceAttribute: at most 64 characters
    r"^[^\x00-\x1f\x7f]{1,64}$", "the value of a device attribute: 1 to 64 characters in one line, such as mlx5_0"
)
CLAIMED_DEVICE = Format(f"^{_LABEL}$", "the name of a device in a ResourceSlice, such as pci-0000-20-1b-0")
PCI_ADDRESS = Format(
    r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$",
    "a PCI address in lower case with its domain, such as 0000:20:1b.0",
)
EXPRESSION = Format(  # resource.k8s.io/v1, CELSelector: at most 10 Ki characters
    r"^[^\x00]{1,10240}$",
    """a CEL expression over `device`, such as has(device.attributes["dra.net"].rdma)""",
)
