"""Lists the codes of admission: what its warnings report, and why an injection record has an entry in `skipped`.

The codes are part of the public interface (docs/interface.md 3.7, generated from this table): they are in warnings,
Events, injection records and metrics. `admission_texts` has the text of each code. A warning of lint has the code of
its rule instead. Codes of rejections are in `railwright.fabric.injection.rejection_codes`.
"""

from typing import Self

from railwright.fabric.reasons.reason_code import Group, ReasonCode


class AdmissionCode(ReasonCode):
    """A code of admission."""

    def __new__(cls, name: str, meaning: str, fix: str = "") -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.group, code.meaning, code.fix = Group.ADMISSION, meaning, fix
        return code

    # --- audit mode -------------------------------------------------------------------------------------------

    WOULD_INJECT = (
        "WouldInject",
        "The fabric is in audit mode: the pod is not changed, and the warning names what would be added.",
        "Set `mode: enforce` in the policy to have it added.",
    )
    WOULD_REJECT = (
        "WouldReject",
        "The fabric is in audit mode: the object is admitted unchanged, and would be rejected otherwise.",
        "See the code of the rejection.",
    )

    # --- left out as the author or the policy says ------------------------------------------------------------

    SKIPPED_BY_ANNOTATION = (
        "SkippedByAnnotation",
        "The annotation `railwright.io/skip` names it.",
        "Remove the word from the annotation, unless that is intended.",
    )
    DISABLED_BY_POLICY = (
        "DisabledByPolicy",
        "The policy disables it for this fabric.",
        "Ask the operator to set `preflight.enabled`, if it is missed.",
    )
    NO_RAILS = ("NoRails", "The pod has no rails to check.")
    PREFLIGHT_WITHOUT_DEVICES = (
        "PreflightWithoutDevices",
        "The annotation `railwright.io/skip` leaves out the devices that the preflight checks.",
        "Remove `devices` from the annotation, or request them in the container.",
    )
    OWN_CLAIM = (
        "OwnClaim",
        "The pod names a ResourceClaimTemplate for NICs of the fabric that railwright did not write, and keeps it.",
        "Remove the claim from the pod to get railwright's.",
    )
    EXCLUDED_BY_POLICY = (
        "ExcludedByPolicy",
        "The policy sets `roles.volcanoTasks` or `roles.launchers` to `never` for this pod.",
        "Ask the operator to change the key, if the pod is a rank.",
    )
    HELPER_POD = (
        "HelperPod",
        "The pod has no accelerators, and others of its workload have them, so it is no rank and gets no rails.",
        "If it is a rank, name its container in `railwright.io/containers` of the template.",
    )
    LAUNCHER_WITHOUT_ACCELERATORS = (
        "LauncherWithoutAccelerators",
        "A launcher without accelerators sends no data, so it gets no rails.",
    )
    HEAD_WITHOUT_ACCELERATORS = (
        "HeadWithoutAccelerators",
        "A Ray head without accelerators sends no data, so it gets no rails.",
    )
    INITIALIZER = ("Initializer", "An initializer sends no data over the fabric, so it gets no rails.")
    SUBMITTER = ("Submitter", "A cleanup or submitter pod sends no data, so it gets no rails.")
    CONTAINERS_IGNORED = (
        "ContainersIgnored",
        "`railwright.io/containers` has no effect, because the pod gets no rails.",
        "If a container is a rank, request an accelerator in it.",
    )

    RAILS_WITHOUT_ACCELERATORS = (
        "RailsWithoutAccelerators",
        "The pod requests no accelerator and gets rails, which other pods of its node then lack.",
        "Remove the label, or say that it is meant: `railwright.io/rails` or `railwright.io/containers`.",
    )

    # --- networks ---------------------------------------------------------------------------------------------

    HOST_NETWORK = (
        "HostNetwork",
        "`hostNetwork` is true, so the pod gets no networks and no `NCCL_SOCKET_IFNAME`.",
        "Remove `hostNetwork`, or set `NCCL_SOCKET_IFNAME`.",
    )
    DEFAULT_ROUTE = (
        "DefaultRoute",
        "An entry of the networks annotation takes the default route from every other interface.",
        "Remove `default-route` from the entry, unless that is intended.",
    )
    NETWORK_MISSING = (
        "NetworkMissing",
        "A NetworkAttachmentDefinition in the networks annotation does not exist.",
        "Create it, or correct the entry.",
    )

    # --- devices ----------------------------------------------------------------------------------------------

    SKIPPED_DEVICES_NEEDED = (
        "SkippedDevicesNeeded",
        "`railwright.io/skip` leaves out devices that the pod's networks need.",
        "Request the devices, or skip the networks too.",
    )
    NETWORK_DEVICES_NOT_REQUESTED = (
        "NetworkDevicesNotRequested",
        "A pod without rails requests too few devices for its own networks.",
        "Request the devices, or remove the networks.",
    )
    RAIL_WITHOUT_RESOURCE = (
        "RailWithoutResource",
        "Neither the policy nor a network names a resource for a rail, so no device is requested.",
        "Ask the operator to set `resource` of the rail.",
    )
    GPUS_NOT_CLAIMED = (
        "GpusNotClaimed",
        "Several containers request GPUs or get the fabric, so the claims have none, and nothing pairs GPUs with NICs.",
        "Request all GPUs in one container.",
    )
    GPUS_EXCEED_NODE = (
        "GpusExceedNode",
        "The pod requests more accelerators than a node of the fabric has, so it stays Pending.",
        "Request fewer, or ask the operator to correct `gpusPerNode`.",
    )
    RAIL_RESOURCES_DIFFER = (
        "RailResourcesDiffer",
        "The policy and the rail's network name different resources, so both are requested.",
        "Ask the operator to correct `resource` of the rail.",
    )
    RAIL_DEVICES_NOT_OFFERED = (
        "RailDevicesNotOffered",
        "No node has a resource of a rail, so the pod stays Pending.",
        "Ask the operator to check the device plugin and `resource` of the rail.",
    )
    NETWORK_DEVICES_NOT_OFFERED = (
        "NetworkDevicesNotOffered",
        "No node has the resource of a network of the pod, so the pod stays Pending.",
        "Correct the networks annotation, or ask the operator for the device plugin.",
    )
    REQUESTED_DEVICES_NOT_OFFERED = (
        "RequestedDevicesNotOffered",
        "A container requests a resource that no node has.",
        "Remove the request, if it is left from an older template.",
    )

    # --- mounts and privileges --------------------------------------------------------------------------------

    PATH_OCCUPIED = ("PathOccupied", "The container mounts something else at the path.", "Remove that mount.")
    HOST_MEMORY = ("HostMemory", "The pod has the host's `/dev/shm`, by `hostIPC` or a mount of `/dev`.")
    POD_SECURITY_FORBIDS = (
        "PodSecurityForbids",
        "The pod-security level of the namespace forbids a setting, so it is left out.",
        "If NCCL fails without it, run the pod in a privileged namespace.",
    )
    CAPABILITY_DROPPED = (
        "CapabilityDropped",
        "The container drops the capability by name, so it is not added.",
        "Remove it from `capabilities.drop`.",
    )
    LOCKING_IN_USER_NAMESPACE = (
        "LockingInUserNamespace",
        "`hostUsers` is false, so `IPC_LOCK` has no effect.",
        "Remove `hostUsers`, or set `LimitMEMLOCK=infinity` for the container runtime.",
    )
    LOCKING_WITHOUT_ROOT = (
        "LockingWithoutRoot",
        "The container does not run as root, so `IPC_LOCK` has no effect.",
        "Run it as root, or set `LimitMEMLOCK=infinity` for the container runtime.",
    )

    # --- variables --------------------------------------------------------------------------------------------

    VARIABLE_FORCED = (
        "VariableForced",
        "The policy's `forceEnv` replaced a value of the pod.",
        "Remove the variable from the pod.",
    )
    VARIABLE_FORCED_AT_BINDING = (
        "VariableForcedAtBinding",
        "The policy's `forceEnv` removed a value of the pod; the forced one is written at binding.",
        "Remove the variable from the pod.",
    )
    ENV_FROM_OVERRIDDEN = (
        "EnvFromOverridden",
        "The policy's `forceEnv` overrides a value that `envFrom` may set.",
        "Remove the variable from the source of `envFrom`.",
    )
    VARIABLES_LEFT_TO_ENV_FROM = (
        "VariablesLeftToEnvFrom",
        "Variables are not set, because they would override `envFrom`.",
        "Set them in `env`, or in the source of `envFrom`.",
    )
    WRITTEN_AT_BINDING = ("WrittenAtBinding", "The value depends on the node and is written at binding.")
    NODE_NAME_SET = (
        "NodeNameSet",
        "`nodeName` is set, so no scheduler binds the pod and no value is written for its node.",
        "Select the node by `nodeSelector`.",
    )
    CONFIG_REPLACED = (
        "ConfigReplaced",
        "A user's value of `railwright.io/nccl.conf` was replaced.",
        "Remove the annotation.",
    )
    CONFIG_PATH_OCCUPIED = (
        "ConfigPathOccupied",
        "A container mounts `/etc/nccl.conf` or `/etc` itself, so it does not get the file.",
        "Remove that mount, or set the NCCL settings in `env`.",
    )

    # --- keys of railwright -----------------------------------------------------------------------------------

    KEY_ON_WORKLOAD = (
        "KeyOnWorkload",
        "An annotation of a workload has no effect, because it is read on pods.",
        "Move it to the pod template.",
    )
    KEY_OF_NAMESPACE = (
        "KeyOfNamespace",
        "The key has an effect as a label of the namespace only.",
        "Move it to the namespace.",
    )
    KEY_WRITTEN_BY_RAILWRIGHT = (
        "KeyWrittenByRailwright",
        "Only railwright writes the key, as an annotation.",
        "Remove it.",
    )
    KEY_MISPLACED = ("KeyMisplaced", "A label is written as an annotation or the reverse.", "Move it.")
    KEY_UNKNOWN = ("KeyUnknown", "There is no such key.", "Use the key that the message suggests.")
    MORE_KEYS = ("MoreKeys", "More keys have no effect than the warnings name.", "Correct the named ones first.")

    # --- records and bindings ---------------------------------------------------------------------------------

    RECORD_TOO_LARGE = (
        "RecordTooLarge",
        "The injection record does not fit into the pod's annotations.",
        "Shorten other annotations.",
    )
    BOUND_POD_UNKNOWN = (
        "BoundPodUnknown",
        "The cache does not contain the pod that is bound, so its placement is not written.",
        "If it persists, check the webhook's access to pods.",
    )
    BOUND_NODE_UNKNOWN = (
        "BoundNodeUnknown",
        "The node of a Binding is empty or not in the cache, so the placement is not written.",
        "If it persists, check the webhook's access to nodes.",
    )
    BOUND_DEVICES_UNKNOWN = (
        "BoundDevicesUnknown",
        "As `BoundNodeUnknown`, and the pod's device list is not written either.",
        "Delete the pod, so that it is bound again.",
    )
    ALLOCATION_UNKNOWN = (
        "AllocationUnknown",
        "The devices of a claim are not known when the pod is bound, so NCCL gets no list of them and does not start.",
        "Delete the pod. If it persists, check the webhook's access to ResourceClaims.",
    )
    ALLOCATED_DEVICES_UNNAMED = (
        "AllocatedDevicesUnnamed",
        "No RDMA device name is known of a device that a claim holds, so NCCL gets no list and does not start.",
        "Ask the operator to check the driver's ResourceSlices, or to set `device` of the rail.",
    )
    PLACED_WITHOUT_EXTENDER = (
        "PlacedWithoutExtender",
        "A scheduler placed the pod without an answer of the extender, so the gang may use more leaves than needed.",
        "Run `railwright check`, and delete the job's pods to place them again.",
    )
    PLACEMENT_TOO_LARGE = (
        "PlacementTooLarge",
        "The placement does not fit into the pod's annotations.",
        "Shorten other annotations.",
    )

    # --- workloads --------------------------------------------------------------------------------------------

    POLICY_MISSING = (
        "PolicyMissing",
        "No policy is in force, so nothing is added to the templates.",
        "If the webhook is not just starting, run `railwright check`.",
    )
    PODS_REJECTED = (
        "PodsRejected",
        "The pods of a template would be rejected now; the parameter `rejection` has the code.",
        "See the code of the rejection.",
    )
    LABEL_OVERRIDDEN = (
        "LabelOverridden",
        "The label of a template takes precedence over the workload's changed label.",
        "Change the label in the template too.",
    )
    LABEL_NOT_PASSED = (
        "LabelNotPassed",
        "The label is on an object of a kind that passes no label to its pods, such as a CronJob.",
        "Set the label in the pod template.",
    )
    LABEL_TOO_LATE = (
        "LabelTooLate",
        "A label is added to a workload whose template cannot change, so its pods do not get it.",
        "Delete the workload, and create it again with the label.",
    )
    TEMPLATE_IMMUTABLE = (
        "TemplateImmutable",
        "An update changes an immutable template.",
        "Undo the other changes, or delete the workload and create it again.",
    )

    # --- policy -----------------------------------------------------------------------------------------------

    POLICY_NETWORK_MISSING = (
        "PolicyNetworkMissing",
        "A NetworkAttachmentDefinition of a rail does not exist, so pods are rejected.",
        "Create it, or correct `network`.",
    )
    POLICY_RESOURCE_UNSET = (
        "PolicyResourceUnset",
        "No resource is known for a rail, so no device is requested.",
        "Set `resource`, unless another rail's resource includes the device.",
    )
    POLICY_RESOURCES_DIFFER = (
        "PolicyResourcesDiffer",
        "A rail and its network name different resources, so pods request both.",
        "Set both to the same resource.",
    )
    POLICY_RESOURCE_NOT_OFFERED = (
        "PolicyResourceNotOffered",
        "No node has a resource of a rail, so pods stay Pending.",
        "Check the device plugin, or correct `resource`.",
    )
    POLICY_OVERRIDDEN = (
        "PolicyOverridden",
        "A FabricPolicy is in force, so the ConfigMap that is written has no effect.",
        "Change the FabricPolicy, or delete one of the two.",
    )

    # --- lint and limits --------------------------------------------------------------------------------------

    MORE_FINDINGS = ("MoreFindings", "Lint has more findings than warnings.", "Run `railwright lint FILE`.")
    LINT_TOO_LARGE = ("LintTooLarge", "The pod is too large to be linted at admission.", "Run `railwright lint FILE`.")
    LINT_FAILED = ("LintFailed", "Lint failed; nothing else is affected.", "Report the error in the message.")
    MORE_WARNINGS = ("MoreWarnings", "There are more warnings than fit.", "Fix the named ones first.")

    # --- reported by the admission policy, because the webhook did not run ------------------------------------

    NOT_INJECTED = (
        "NotInjected",
        "The pod or its namespace opted in, but railwright has not injected the pod: it would use TCP.",
        "Try again; if the error persists, ask the operator to run `railwright check`.",
    )
