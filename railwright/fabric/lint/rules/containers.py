"""Rules about the containers of a job: their memory, permissions and images, the identity of their ranks, NCCL's logs,
and the files that NCCL reads.
"""

import re
from collections.abc import Iterator

from railwright.fabric import names, text
from railwright.fabric.lint import rule_types

_IDENTITIES = {
    "NCCL_COMM_ID": "every communicator then meets at this one address, and the second fails",
    "NCCL_HOSTID": "pods on different nodes then take each other for neighbours and try shared memory",
}
_LOCKING = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_ROOT = 0
# Nodes whose container runtime sets memlock to unlimited: the vendors' own manifests add no capability
# (awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes, coreweave/nccl-tests mpi-operator).
_UNLIMITED_DEVICES = frozenset({"vpc.amazonaws.com/efa"})
_UNLIMITED_NODES = ("node.coreweave.cloud/", "backend.coreweave.cloud/")
_LEAST_SHARED_MEMORY = 1 << 30  # bytes (NVIDIA/nccl troubleshooting guide: 1 GB or more)
_UNLIMITED = 0
_WITHOUT_RANKS = re.compile(r"(?:^|/)(?:pause|gpu-?burn)(?=$|[:@])")  # images of programs that do not communicate
_MAX_IMAGES = 3  # that a message names


def _check_identity(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value and _is_shared(setting, ranks):
        yield f"is the same in all pods of the template: {_IDENTITIES[setting.name]}; remove it"


def _is_shared(setting: rule_types.Setting, ranks: rule_types.RankContext) -> bool:
    """True if several ranks get the value. A launcher's mpirun passes it to the whole job, a template to its pods."""
    has_several_ranks = (ranks.job or 1) > 1
    reaches_job = setting.origin is rule_types.Origin.MPIRUN or setting.name == "NCCL_COMM_ID"
    return (ranks.count or 1) > 1 or (has_several_ranks and reaches_job)


def _check_locked_memory(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ranks.capabilities is None or not rule_types.is_rdma_requested(ranks):
        return
    is_granted = ranks.privileged or not _LOCKING.isdisjoint(ranks.capabilities)
    if not is_granted and not _is_unlimited_by_policy(ranks) and not _is_unlimited_by_vendor(ranks):
        yield rule_types.Violation(
            f"the container requests {', '.join(sorted(ranks.rdma_devices))} without IPC_LOCK: memory registration "
            "fails unless the nodes' container runtime sets memlock to unlimited; add IPC_LOCK to "
            "securityContext.capabilities.add"
        )


def _is_unlimited_by_vendor(ranks: rule_types.RankContext) -> bool:
    """True for devices and nodes of vendors that set memlock to unlimited."""
    by_label = any(label.startswith(_UNLIMITED_NODES) for label in ranks.node_labels)
    return ranks.rdma_devices.keys() <= _UNLIMITED_DEVICES or by_label


def _is_unlimited_by_policy(ranks: rule_types.RankContext) -> bool:
    """True if the policy grants no permission to lock memory: its nodes are assumed to set memlock to unlimited."""
    fabric = ranks.fabric_context.fabric
    return fabric is not None and not fabric.security.privileged and _LOCKING.isdisjoint(fabric.security.capabilities)


def _check_user(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    is_granted = not _LOCKING.isdisjoint(ranks.capabilities or ()) or (
        ranks.privileged and rule_types.is_rdma_requested(ranks)
    )
    if not is_granted:
        return
    if ranks.run_as_user is None:
        user = "as a user other than root (runAsNonRoot)" if ranks.run_as_non_root else ""
    else:
        user = f"as user {ranks.run_as_user}" if ranks.run_as_user != _ROOT else ""
    if user:
        yield rule_types.Violation(
            f"the container runs {user}, and IPC_LOCK has an effect only for root: memory registration "
            "fails unless the nodes' container runtime sets memlock to unlimited; run as root, or set memlock"
        )


def _check_shared_memory(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ranks.accelerators < 2 or ranks.capabilities is None or _WITHOUT_RANKS.search(ranks.image or ""):
        return  # None: no pod is seen
    size = ranks.shared_memory
    if size is None and ranks.mounts.get(names.DEV_SHM) != "hostPath":
        yield rule_types.Violation(
            f"the container has {ranks.accelerators} accelerators and no memory volume at {names.DEV_SHM}, where the "
            "runtime gives 64 MiB; mount an emptyDir with medium: Memory there"
        )
    elif size is not None and _UNLIMITED < size < _LEAST_SHARED_MEMORY:
        yield rule_types.Violation(
            f"the memory volume at {names.DEV_SHM} holds {size} bytes, and {ranks.accelerators} accelerators need "
            "1Gi or more; raise its sizeLimit"
        )


def _check_images(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if len(ranks.images) > 1:
        images = text.join_first(sorted(rule_types.quote(image) for image in ranks.images), _MAX_IMAGES)
        yield rule_types.Violation(
            f"the ranks of this job run {images}: NCCL stops at start where its versions differ; "
            "use one image for all ranks"
        )


_READ_FILES = {
    "NCCL_TOPO_FILE": "NCCL ignores a topology file that is missing",
    "NCCL_GRAPH_FILE": "NCCL fails at start when the graph file is missing",
}
_IN_IMAGES = ("/opt/amazon/",)  # images of AWS have the files of their plugin here
_DEFAULT_TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"  # NCCL looks here by default
_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_LOUD = frozenset({"INFO", "TRACE"})
_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS"),
    *("BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
)
_STREAMS = ("/dev/", "/proc/")
_PRIVATE = frozenset({"memory", "emptyDir"})  # kinds of volume that no other pod sees
# What the one vendor that publishes an nccl.conf writes into it: Azure/azhpc-images, components/customizations.
_AZURE = frozenset({"NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_TOPO_FILE"})
_OF_AZURE = ("azhpc", "azurehpc")  # words in the names of images built from those scripts
_BY_SHAPE = "NCCL_IB_"  # what vendors' ConfigMaps set by node shape (oracle-quickstart/oci-hpc-oke)
_OTHER_SOURCES = {
    "NCCL_ENV_PLUGIN": "the plugin may replace any value railwright sets; remove it, or make sure that it does not",
    "NCCL_CONF_FILE": (
        f"its lines win over those of {names.NCCL_CONF_PATH}, where railwright may put its own; name the variables in "
        "the environment instead"
    ),
}
_HARMLESS = frozenset({"", "none", names.NCCL_CONF_PATH})  # an empty value is N11's
_OF_PLUGINS = ("/usr/local/gib/",)  # folders of vendors' plugins with a file of settings; recipes name Google's gIB's


def _check_mounted(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    path = setting.text
    if not path or ranks.capabilities is None or not ranks.has_ranks:  # None: no pod is seen
        return
    if not _is_present(path, ranks) and not rule_types.is_policy_value(setting, ranks):
        effect = _READ_FILES[setting.name]
        yield f"no volume is mounted there, and {effect}; mount it, unless the image holds it"


def _is_present(path: str, ranks: rule_types.RankContext) -> bool:
    is_mounted = any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in ranks.mounts)
    return is_mounted or path == _DEFAULT_TOPOLOGY or path.startswith(_IN_IMAGES)


def _check_shape(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    files = [file for file in ranks.fabric_context.topology_files if file]
    if setting.text and files and setting.text not in files and not rule_types.is_policy_value(setting, ranks):
        yield f"by the policy, the nodes on which the pod can run have {', '.join(files)}; remove it"


def _check_words(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    text = setting.text
    if not text:
        return
    if setting.name == "NCCL_DEBUG":
        if text.upper() not in _LEVELS:
            yield f"NCCL does not know this word and prints nothing at all; write one of {' '.join(_LEVELS)}"
        return
    tokens = text.removeprefix("^").split(",")
    unknown = [rule_types.quote(token) or "an empty word" for token in tokens if token.upper() not in _SUBSYSTEMS]
    if unknown:
        yield f"{', '.join(unknown[:4])}: no such subsystem, and one unknown word drops the whole list; correct it"


def _check_loud(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.text.upper() in _LOUD and not ranks.is_benchmark:
        yield "makes large logs from every rank; write WARN in production"


def _check_log_file(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    path = setting.text
    if path and not path.startswith(_STREAMS) and (writers := _describe_writers(setting, path, ranks)):
        yield f"{writers} overwrite each other's log; put %h (host) and %p (process) into the name"


def _describe_writers(setting: rule_types.Setting, path: str, ranks: rule_types.RankContext) -> str | None:
    """Return the processes that write the same file, or None if each has its own."""
    by_process, by_host = "%p" in path, "%h" in path
    if not by_process and ranks.accelerators > 1:
        return "the processes of a container"
    if not by_host and (ranks.count or 1) > 1 and _is_on_shared_volume(path, ranks):
        return "the pods of the template"
    by_launcher = setting.origin is rule_types.Origin.MPIRUN and (ranks.job or 1) > 1
    return "the ranks of the job" if by_launcher and not by_process and not by_host else None


def _is_on_shared_volume(path: str, ranks: rule_types.RankContext) -> bool:
    """True if the file is on a volume that other pods may mount as well."""
    holding = [mount for mount in ranks.mounts if path.startswith(f"{mount.rstrip('/')}/")]
    return bool(holding) and ranks.mounts[max(holding, key=len)] not in _PRIVATE


def _check_overridden(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.origin is rule_types.Origin.FILE:
        return
    line = ranks.file_lines.get(setting.name)
    if line is not None and line.value != setting.value:
        yield f"overrides {rule_types.format_setting(line)} of the nccl.conf; keep one of them"
    elif line is None and setting.name in _AZURE and _has_azure_file(ranks):
        yield f"overrides the {names.NCCL_CONF_PATH} of Azure's HPC images; remove it to keep theirs"
    elif _is_by_shape(setting, ranks):
        yield f"overrides the ConfigMap at {names.NCCL_CONF_PATH}, if that has the name; keep one of them"


def _is_by_shape(setting: rule_types.Setting, ranks: rule_types.RankContext) -> bool:
    """True if a vendor's ConfigMap is mounted, which may set the variable by node shape."""
    is_mounted = ranks.mounts.get(names.NCCL_CONF_PATH) == "configMap"
    return is_mounted and setting.name.startswith(_BY_SHAPE) and not rule_types.is_policy_value(setting, ranks)


def _has_azure_file(ranks: rule_types.RankContext) -> bool:
    is_hosts_file = ranks.mounts.get(names.NCCL_CONF_PATH) == "hostPath"
    return is_hosts_file or any(word in (ranks.image or "") for word in _OF_AZURE)


def _check_sources(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    is_of_plugin = ranks.fabric_context.fabric is None and setting.text.startswith(_OF_PLUGINS)
    if setting.value not in _HARMLESS and not is_of_plugin:
        yield _OTHER_SOURCES[setting.name]


RULES = (
    rule_types.Rule("N39", frozenset(_IDENTITIES), _check_identity),
    rule_types.Rule("N45", needs=("devices",), check_ranks=_check_locked_memory),
    rule_types.Rule("N46", needs=("accelerators",), check_ranks=_check_shared_memory),
    rule_types.Rule("N48", needs=("images",), check_ranks=_check_images),
    rule_types.Rule("N64", needs=("run_as_user", "run_as_non_root"), check_ranks=_check_user),
    rule_types.Rule("N40", frozenset(_READ_FILES), _check_mounted),
    rule_types.Rule("N42", frozenset({"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"}), _check_words),
    rule_types.Rule("N43", frozenset({"NCCL_DEBUG"}), _check_loud),
    rule_types.Rule("N44", frozenset({"NCCL_DEBUG_FILE"}), _check_log_file),
    rule_types.Rule("N50", lambda _: True, _check_overridden),
    rule_types.Rule("N71", frozenset({"NCCL_TOPO_FILE"}), _check_shape),
    rule_types.Rule("N58", frozenset(_OTHER_SOURCES), _check_sources),
)
