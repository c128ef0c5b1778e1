"""The forms of text a policy may hold: a pattern for machines and a phrase for people, side by side.

Owns single values only; how values relate to each other is `checks`, which key has which form is `schema`.
Patterns are matched against the whole text and use only what Python and ECMAScript read alike.
"""

import dataclasses

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1123 label, as Kubernetes restricts it
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"  # the name part of a qualified name; a label value

_RAIL = r"\{rail\}"  # topology.RAIL: the name of each rail


@dataclasses.dataclass(frozen=True)
class Form:
    """A pattern and the phrase that completes "VALUE is not ..."."""

    pattern: str
    phrase: str


FABRIC_NAME = Form(f"^{_NAME}$", "a fabric name: a label value of at most 63 letters, digits, '-', '_' and '.'")
LABEL_KEY = Form(f"^({_SUBDOMAIN}/)?{_NAME}$", "a label key, such as topology.example.com/leaf")
DOMAIN_KEY = Form(
    rf"^({_SUBDOMAIN}/)?([A-Za-z0-9]|{_RAIL})(([A-Za-z0-9_.-]|{_RAIL}){{0,61}}([A-Za-z0-9]|{_RAIL}))?$",
    "a label key, such as topology.example.com/leaf; in its name {rail} may stand for each rail's name, as in "
    "example.com/leaf-{rail}",
)
LABEL_VALUE = Form(f"^({_NAME})?$", "a label value: at most 63 letters, digits, '-', '_' and '.'")
ANNOTATION_KEY = Form(f"^({_SUBDOMAIN}/)?{_NAME}$", "an annotation key, such as ipam.spidernet.io/ippools")
RAIL_NAME = Form(f"^{_LABEL}$", "a rail name: at most 63 lower-case letters, digits and '-', such as rail0")
SHAPE_NAME = Form(f"^{_NAME}$", "a shape name: at most 63 letters, digits, '-', '_' and '.', such as h100-8x4")
TASK_NAME = Form(f"^{_LABEL}$", "a Volcano task name: at most 63 lower-case letters, digits and '-'")
NETWORK = Form(
    f"^{_LABEL}/{_SUBDOMAIN}$",
    "a NetworkAttachmentDefinition as namespace/name, always qualified, such as prod/rdma-lan2",
)
INTERFACE = Form(  # IFNAMSIZ and dev_valid_name() of the Linux kernel
    r"^(?!\.{1,2}$)[^\s/:]{1,15}$",
    "an interface name: 1 to 15 characters without spaces, '/' and ':', such as net1",
)
RESOURCE = Form(f"^{_SUBDOMAIN}/{_NAME}$", "an extended resource as domain/name, such as nvidia.com/mlx5_0")
DEVICE = Form(  # IB_DEVICE_NAME_MAX is 64 with its terminator; ',', ':', '=' and '^' are NCCL_IB_HCA syntax
    "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
    "an RDMA device name as ibv_devices lists it, without port, such as mlx5_0",
)
CAPABILITY = Form("^(?!CAP_)[A-Z][A-Z0-9_]*$", "a capability in upper case without the prefix CAP_, such as IPC_LOCK")
ENV_NAME = Form(  # the environment names every supported Kubernetes release accepts
    "^[-._A-Za-z][-._A-Za-z0-9]*$", "an environment variable name, such as NCCL_NET_GDR_READ"
)
ENV_VALUE = Form(r"^[^\x00\r\n]*$", "one line of text (NCCL reads its settings line by line)")
ABSOLUTE_PATH = Form(r"^/[^\x00-\x1f]*$", "an absolute path in the container, such as /etc/nccl/topo.xml")
IMAGE = Form(r"^[^\s]{1,255}$", "a container image without spaces, such as railwright:latest")
