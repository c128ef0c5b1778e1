"""Holds the text of each code of admission and of variables: a sentence with the fix, as warnings and Events show it.

`rendering` is the only caller.
"""

from collections.abc import Mapping
from typing import Any

from railwright.fabric import names, text
from railwright.fabric.reasons import texts
from railwright.fabric.reasons.admission_codes import AdmissionCode as Code
from railwright.fabric.reasons.reason_code import ReasonCode
from railwright.fabric.reasons.variable_codes import VariableCode

_KEY = "{type} {key} {value!r}"
_MEMLOCK = "ask the operator for LimitMEMLOCK=infinity of the container runtime"


def _fill(template: str, *shortened: str) -> texts.Renderer:
    """Return a renderer of `template` that shortens these parameters, which are names or lists of names."""

    def render(parameters: texts.Parameters) -> str:
        short = {name: _shorten(parameters[name]) for name in shortened}
        return template.format_map({**parameters, **short})

    return render


def _shorten(value: Any) -> str:
    return text.join_fitting([value] if isinstance(value, str) else value)


def _fill_policy(template: str) -> texts.Renderer:
    """Return a renderer of `template` for a policy's author, which names the first few of each list."""

    def render(parameters: texts.Parameters) -> str:
        return template.format_map(
            {name: value if isinstance(value, str) else text.join_first(value, 4) for name, value in parameters.items()}
        )

    return render


def _explain_exclusion(parameters: texts.Parameters) -> str:
    task = f" for task {parameters['task']}" if parameters["task"] else ""
    return f"the policy sets {parameters['key']} to never{task}"


def _explain_host_network(parameters: texts.Parameters) -> str:
    if parameters["fabric"]:
        return (
            f"spec.hostNetwork is true: fabric {parameters['fabric']} adds no networks and no NCCL_SOCKET_IFNAME; "
            "remove hostNetwork to give the pod network interfaces of its own"
        )
    return (
        "spec.hostNetwork is true: NCCL_SOCKET_IFNAME is not set, because the interfaces of the host are not known; "
        "remove hostNetwork, or set NCCL_SOCKET_IFNAME in the container"
    )


def _explain_host_memory(parameters: texts.Parameters) -> str:
    if parameters["containers"]:
        return f"container {_shorten(parameters['containers'])} mounts /dev of the host"
    return f"spec.hostIPC is true: {names.DEV_SHM} is the host's"


def _explain_audited_rejection(parameters: texts.Parameters) -> str:
    where = f"fabric {parameters['fabric']}" if parameters["fabric"] else "the policy"
    return f"{where} is in audit mode, otherwise rejected ({parameters['rejection']}): {parameters['message']}"


def _explain_unclaimed_gpus(parameters: texts.Parameters) -> str:
    problem = f"the claims have no GPUs, so nothing pairs them with the NICs of fabric {parameters['fabric']}"
    if init_container := parameters.get("init_container"):
        return (
            f"{problem}: init container {init_container} has GPUs of its own, as a sidecar or because it requests more "
            "than the container of the ranks; request no more there, and none in a sidecar"
        )
    return (
        f"{problem}: containers with one claim share its devices; request all GPUs in one container, and name no other "
        f"in annotation {names.CONTAINERS}"
    )


def _explain_missing_node(consequence: str) -> texts.Renderer:
    """Return a renderer for a Binding to a node that is not in the cache."""

    def render(parameters: texts.Parameters) -> str:
        node = parameters["node"]
        cause = f"node {node} is not known to railwright yet" if node else "target.name of the Binding is empty"
        return f"{cause}: {consequence}"

    return render


def _explain_workload_key(parameters: texts.Parameters) -> str:
    owner = f" of the {parameters['kind']}" if parameters["kind"] else ""
    template = parameters["template"]
    destination = f"the pod template ({template}.metadata)" if template else "the pod templates it is meant for"
    problem = f"{_KEY.format_map(parameters)}{owner} has no effect"
    return f"{problem}: railwright reads it on pods; move it to the annotations of {destination}"


def _explain_misplaced_key(parameters: texts.Parameters) -> str:
    expected = parameters["expected"]
    article = "an" if expected == "annotation" else "a"
    return f"{_KEY.format_map(parameters)} has no effect: railwright reads it as {article} {expected}; move it there"


def _explain_unknown_key(parameters: texts.Parameters) -> str:
    first, *others = names.POD_KEYS
    others_short = ", ".join(key.removeprefix(f"{names.DOMAIN}/") for key in others)
    advice = (
        f"did you mean {parameters['suggestion']}?"
        if parameters["suggestion"]
        else f"it reads label {names.FABRIC} and annotations {first}, {others_short} of a pod"
    )
    return f"{_KEY.format_map(parameters)} has no effect: railwright has no such key; {advice}"


_ADMISSION: Mapping[ReasonCode, texts.Renderer] = {
    Code.WOULD_INJECT: _fill(
        "fabric {fabric} is in audit mode, so nothing is changed; with `mode: enforce` the pod would get {parts}",
        "parts",
    ),
    Code.WOULD_REJECT: _explain_audited_rejection,
    Code.SKIPPED_BY_ANNOTATION: f"by annotation {names.SKIP}",
    Code.DISABLED_BY_POLICY: "disabled by policy",
    Code.NO_RAILS: "no rails",
    Code.PREFLIGHT_WITHOUT_DEVICES: f"annotation {names.SKIP} leaves out the devices that preflight checks",
    Code.OWN_CLAIM: _fill(
        "the pod's claim {claim} names a template for NICs of fabric {fabric} that railwright did not write", "claim"
    ),
    Code.EXCLUDED_BY_POLICY: _explain_exclusion,
    Code.HELPER_POD: (
        "the pod has no accelerators, and others of its workload have them, so it is no rank; annotation "
        f"{names.CONTAINERS} of the template makes it one"
    ),
    Code.LAUNCHER_WITHOUT_ACCELERATORS: "a launcher without accelerators sends no data",
    Code.HEAD_WITHOUT_ACCELERATORS: "a Ray head without accelerators sends no data",
    Code.INITIALIZER: "an initializer sends no data over the fabric",
    Code.SUBMITTER: "a cleanup or submitter pod sends no data",
    Code.CONTAINERS_IGNORED: _fill(
        f"annotation {names.CONTAINERS} {{value}} has no effect: {{cause}}; if a container is a rank, request an "
        "accelerator in it",
        "value",
    ),
    Code.RAILS_WITHOUT_ACCELERATORS: _fill(
        "the pod requests no {accelerators} and gets {rails} of fabric {fabric}, which other pods of its node then "
        f"lack; remove label {names.FABRIC}, or set annotation {names.RAILS} if it needs them",
        "accelerators",
    ),
    Code.HOST_NETWORK: _explain_host_network,
    Code.DEFAULT_ROUTE: (
        f"annotation {names.NETWORKS}: entry {{entry}} has default-route, which takes the default route from every "
        "other interface of the pod; remove it unless that is intended"
    ),
    Code.NETWORK_MISSING: _fill(
        f"annotation {names.NETWORKS}: NetworkAttachmentDefinition {{network}} of entry {{entry}} does not exist, and "
        "the pod's sandbox cannot start without it; create it or correct the entry",
        "network",
    ),
    Code.SKIPPED_DEVICES_NEEDED: _fill(
        f"annotation {names.SKIP} leaves out devices, and the pod requests too few of {{resources}} for its networks, "
        "so its sandbox cannot start; request them, or add networks to the annotation",
        "resources",
    ),
    Code.NETWORK_DEVICES_NOT_REQUESTED: _fill(
        f"annotation {names.NETWORKS}: its networks use {{resources}}, and the pod requests too few, so it cannot "
        "start; request them, or remove the networks from this {role}",
        "resources",
    ),
    Code.RAIL_WITHOUT_RESOURCE: _fill(
        "no device is requested for {rails}, because neither the policy nor a network names a resource for it; ask "
        "the operator to set `resource` of the rail in the policy of fabric {fabric}",
        "rails",
    ),
    Code.GPUS_NOT_CLAIMED: _explain_unclaimed_gpus,
    Code.GPUS_EXCEED_NODE: (
        "the pod requests {count} {resource}, and a node of fabric {fabric} has {limit}: it stays pending; request at "
        "most {limit}, or ask the operator to correct fabrics.{fabric}.gpusPerNode"
    ),
    Code.RAIL_RESOURCES_DIFFER: _fill(
        "{rail}: the policy requests {resource} and the network uses {network_resource}, so both are requested; ask "
        "the operator to correct `resource` of the rail",
        *("rail", "resource", "network_resource"),
    ),
    Code.RAIL_DEVICES_NOT_OFFERED: _fill(
        "no node offers {resources}, which {rails} needs: the pod stays pending until a node does; ask the operator "
        "to check the device plugin and `resource` of the rail",
        *("resources", "rails"),
    ),
    Code.NETWORK_DEVICES_NOT_OFFERED: _fill(
        "no node offers {resources}, which network {networks} uses: the pod stays pending; correct annotation "
        f"{names.NETWORKS}, or ask the operator for its device plugin",
        *("resources", "networks"),
    ),
    Code.REQUESTED_DEVICES_NOT_OFFERED: _fill(
        "container {container} requests {resources}, which no node offers: the pod stays pending until a node does; "
        "remove the request if it is left from an older template",
        "resources",
    ),
    Code.PATH_OCCUPIED: _fill("container {containers} mounts {path} itself", "containers"),
    Code.HOST_MEMORY: _explain_host_memory,
    Code.POD_SECURITY_FORBIDS: (
        "namespace {namespace} enforces pod-security level {level}, which forbids {setting}: it is left out; if NCCL "
        "fails without it, run the pod in a privileged namespace"
    ),
    Code.CAPABILITY_DROPPED: _fill(
        "container {containers}: remove {capability} from securityContext.capabilities.drop if NCCL is to register "
        "memory with the NIC; fabric {fabric} does not add what a container drops by name",
        "containers",
    ),
    Code.LOCKING_IN_USER_NAMESPACE: (
        "spec.hostUsers is false: {capability} has no effect in a user namespace, and NCCL may fail to register "
        f"memory; remove hostUsers, or {_MEMLOCK}"
    ),
    Code.LOCKING_WITHOUT_ROOT: _fill(
        "container {containers} does not run as root: {capability} has no effect, and NCCL may fail to register "
        f"memory; run it as root, or {_MEMLOCK}",
        "containers",
    ),
    Code.VARIABLE_FORCED: (
        "container {container}: remove {variable} from the pod; the pod's own value was replaced, because the policy "
        "of fabric {fabric} forces {variable}={value}"
    ),
    Code.VARIABLE_FORCED_AT_BINDING: (
        "container {container}: remove {variable} from the pod; the pod's own value was removed: the policy of fabric "
        "{fabric} forces {variable}, which is written at binding"
    ),
    Code.ENV_FROM_OVERRIDDEN: _fill(
        "container {container}: the policy forces {variable}={value}, which overrides any {variable} from envFrom; "
        "remove it there",
        "value",
    ),
    Code.VARIABLES_LEFT_TO_ENV_FROM: _fill(
        "container {container} has envFrom, so {variables} is not set: it would override envFrom; set it in env or "
        "in its source",
        "variables",
    ),
    Code.WRITTEN_AT_BINDING: "written at binding",
    Code.NODE_NAME_SET: (
        "spec.nodeName is set: no scheduler binds the pod, so {variable} is not written for its node; select the node "
        "by nodeSelector instead"
    ),
    Code.CONFIG_REPLACED: (f"annotation {names.NCCL_CONF} is written by railwright; its value was replaced; remove it"),
    Code.CONFIG_PATH_OCCUPIED: (
        "container {container} mounts {path} itself; remove that mount, or set the NCCL settings of fabric {fabric} "
        "in env"
    ),
    Code.KEY_ON_WORKLOAD: _explain_workload_key,
    Code.KEY_OF_NAMESPACE: f"{_KEY} has no effect: railwright reads it as a label of the namespace; move it there",
    Code.KEY_WRITTEN_BY_RAILWRIGHT: f"{_KEY} has no effect: only railwright writes it, as an annotation; remove it",
    Code.KEY_MISPLACED: _explain_misplaced_key,
    Code.KEY_UNKNOWN: _explain_unknown_key,
    Code.MORE_KEYS: f"more keys of {names.DOMAIN} have no effect; correct these first",
    Code.RECORD_TOO_LARGE: (
        f"annotation {names.INJECTION} is left out: the pod's annotations are at their limit of 256 KiB; shorten some "
        "of them"
    ),
    Code.BOUND_POD_UNKNOWN: (
        f"pod {{pod}} is not known to railwright yet: annotation {names.PLACEMENT} is not written"
    ),
    Code.BOUND_NODE_UNKNOWN: _explain_missing_node(f"annotation {names.PLACEMENT} is not written"),
    Code.BOUND_DEVICES_UNKNOWN: _explain_missing_node(
        f"annotation {names.PLACEMENT} and the node's NCCL_IB_HCA are not written, so NCCL does not start; "
        "delete the pod so that it is bound again"
    ),
    Code.ALLOCATION_UNKNOWN: _fill(
        "the devices of {claims} are not known to railwright yet, so NCCL_IB_HCA names none and NCCL does not start; "
        "delete the pod so that it is bound again",
        "claims",
    ),
    Code.ALLOCATED_DEVICES_UNNAMED: _fill(
        "no ResourceSlice names the RDMA device of {devices}, so NCCL_IB_HCA names none and NCCL does not start; check "
        "the driver, or set the device of the rail in the policy",
        "devices",
    ),
    Code.PLACED_WITHOUT_EXTENDER: (
        "scheduler {scheduler} placed pods without railwright's extender: {problem}; the gang may be spread over more "
        "leaves than needed: the administrator finds the cause with `railwright check`, then create the job again"
    ),
    Code.PLACEMENT_TOO_LARGE: "the pod's annotations are at their limit of 256 KiB: its placement is not recorded",
    Code.POLICY_MISSING: (
        "railwright has no policy in force yet: no devices are added to the templates, and their pods are rejected "
        "until it has one; if it is not just starting, the administrator finds the cause with `railwright check`"
    ),
    Code.PODS_REJECTED: "{message}; its pods are rejected until then",
    Code.LABEL_OVERRIDDEN: (
        f"its own label {names.FABRIC} {{label}} takes precedence over the changed label of the {{kind}}; change it "
        "in the template too"
    ),
    Code.LABEL_NOT_PASSED: (
        f"label {names.FABRIC} {{value!r}} of the {{kind}} has no effect: a {{kind}} passes no label to its pods; "
        "set it in {template}.metadata.labels"
    ),
    Code.LABEL_TOO_LATE: (
        f"label {names.FABRIC} {{value!r}} of the {{kind}} comes too late: its template cannot change any more, "
        "so its pods do not get the label; delete the {kind}, and create it again with the label"
    ),
    Code.TEMPLATE_IMMUTABLE: (
        "the template of a {kind} cannot change, and this update does more than remove what railwright added at "
        "creation; undo the other changes, or delete the {kind} and create it again"
    ),
    Code.POLICY_NETWORK_MISSING: _fill_policy(
        "{path}: NetworkAttachmentDefinition {networks} does not exist, so pods with {rails} are rejected; create it "
        "or correct `network`"
    ),
    Code.POLICY_RESOURCE_UNSET: _fill_policy(
        "{path}: no device is requested for {rails}: neither the rail's `resource` nor annotation "
        f"{names.NAD_RESOURCE_NAME} of its network names a resource; set `resource`, unless another rail's resource "
        "includes the device"
    ),
    Code.POLICY_RESOURCES_DIFFER: (
        "{path}: {rail} has resource {resource}, but its network {network} names {network_resource}, so pods request "
        "both; set both to the same resource"
    ),
    Code.POLICY_RESOURCE_NOT_OFFERED: _fill_policy(
        "{path}: no node offers {resources} now, so pods stay Pending; check the device plugin, or correct `resource`"
    ),
    Code.POLICY_OVERRIDDEN: (
        "{resource} is in force: while it exists, this ConfigMap has no effect; change the FabricPolicy, or delete one "
        "of the two"
    ),
    Code.MORE_FINDINGS: lambda parameters: (
        f"{text.format_count(parameters['count'], 'more finding')} about NCCL settings; "
        "`railwright lint FILE` shows them all"
    ),
    Code.LINT_TOO_LARGE: ("the pod is too large to be linted during admission; `railwright lint` checks all of it"),
    Code.LINT_FAILED: "railwright could not lint this pod ({error}); nothing else is affected",
    Code.MORE_WARNINGS: lambda parameters: (
        f"and {text.format_count(parameters['count'], 'more warning')}; fix these first to see them"
    ),
    Code.NOT_INJECTED: (
        f"the pod opted in but has no annotation {names.INJECTION}: the webhook did not run for it; check that the "
        "webhook is available and has a valid policy, then recreate the pod"
    ),
}


RENDERERS: Mapping[ReasonCode, texts.Renderer] = {
    **_ADMISSION,
    **{code: f"{code.text} ({code.source})" for code in VariableCode},
}
