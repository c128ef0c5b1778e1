"""Plans the changes of a pod template: the devices and mounts of the plan that its pods would get.

Templates get these so that quotas, queues and PodGroups count the devices. The pod gets the rest at its own admission
from the same plan, so nothing is added twice (docs/interface.md 3). An updated template of a kind whose templates are
immutable is compared with the stored one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent, names, quantity, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.injection import claim_requests, devices, facts, opt_in, plan, pod_changes, templates
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import AdmissionCode

# Refusals that may not apply when the pod is created: package managers create custom resources such as networks after
# the workload, and a new namespace may not be observed yet.
_TEMPORARY = frozenset({"missing-network", "namespace-unknown"})


class TemplatePlan(msgspec.Struct, frozen=True):
    """The plan of a template.

    `injection` is its pod's plan, None if the pod did not opt in, or its plan is deferred or would be a rejection.
    """

    template: templates.Template
    changes: tuple[pod_changes.Change, ...]
    warnings: tuple[rendering.Message, ...] = ()
    injection: pod_changes.Injection | None = None
    is_enforced: bool = True  # in mode `warn` the template is not changed


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> TemplatePlan | pod_changes.Refusal:
    """Return the plan of the template, or the refusal that its pods would get. `workload_name` is used in messages."""
    pod = build_pod(template)
    cluster = msgspec.structs.replace(
        cluster, job_accelerated=template.is_job_accelerated(policy.document.accelerators)
    )
    outcome = plan.plan(pod, policy, cluster, f"{workload_name}: {template.title}")
    match outcome:
        case pod_changes.NotOptedIn(warnings=warnings):
            return TemplatePlan(template, copy_label(template), locate(template, warnings))
        case pod_changes.Injection() | pod_changes.Refusal() if not intent.is_enforced(policy.document, outcome.fabric):
            injection = outcome if isinstance(outcome, pod_changes.Injection) else None
            warnings = locate(template, plan.describe_unenforced(outcome))
            return TemplatePlan(template, (), warnings, injection, is_enforced=False)
        case pod_changes.Refusal(reason=reason, message=message) if reason in _TEMPORARY:
            rejected = rendering.describe(reasons.make(AdmissionCode.PODS_REJECTED, rejection=reason, message=message))
            return TemplatePlan(template, copy_label(template), (rejected,))
        case pod_changes.Refusal(reason=opt_in.UNKNOWN_FABRIC) if template.inherited == template.label:
            # The label is on the workload, so the message must not name the template.
            message = outcome.message.replace(f"{workload_name}: {template.title}: ", f"{workload_name}: ", 1)
            return msgspec.structs.replace(outcome, message=message)
        case pod_changes.Refusal():
            return outcome
        case pod_changes.Injection():
            changes = copy_label(template) + tuple(change for change in outcome.changes if _belongs_to_template(change))
            return TemplatePlan(template, changes, locate(template, outcome.warnings), outcome)


def locate(template: templates.Template, warnings: Iterable[rendering.Message]) -> tuple[rendering.Message, ...]:
    """Return the warnings with the path of the template before the text."""
    return tuple([rendering.locate(warning, template.title) for warning in warnings])


def copy_label(template: templates.Template) -> tuple[pod_changes.SetLabel, ...]:
    """Return the change that copies the inherited label into the template, unless it has its own. Needs no policy."""
    if template.inherited is None or names.FABRIC in template.pod.metadata.labels:
        return ()
    reason = "the label of the workload applies to all its pod templates"
    return (pod_changes.SetLabel(entry="", reason=reason, key=names.FABRIC, value=template.inherited),)


def build_pod(template: templates.Template) -> views.Pod:
    """Return the pod that the controller will create from the template, with the fields that its plan reads."""
    pod = template.pod
    labels = {**pod.metadata.labels, **template.added.labels}
    if template.label is not None:
        labels[names.FABRIC] = template.label
    metadata = msgspec.structs.replace(pod.metadata, labels_or_none=labels)
    added = template.added
    if not added.env and not added.commands and not added.volumes:
        return msgspec.structs.replace(pod, metadata=metadata)
    variables = [views.EnvVar(name=name, value="") for name in added.env]
    mounts = [
        views.VolumeMount(name=volume.name, mount_path=volume.mount_path)
        for volume in added.volumes
        if volume.mount_path
    ]
    containers = [
        msgspec.structs.replace(
            container,
            env_or_none=[*container.env, *variables] if variables else container.env_or_none,
            command=[*added.commands[container.name]] if container.name in added.commands else container.command,
            volume_mounts_or_none=[*container.volume_mounts, *mounts] if mounts else container.volume_mounts_or_none,
        )
        for container in pod.spec.containers
    ]
    claims = {volume.name: views.Volume(name=volume.name) for volume in added.volumes}
    volumes = [volume for volume in pod.spec.volumes if volume.name not in claims]
    spec = msgspec.structs.replace(
        pod.spec,
        containers_or_none=containers,
        volumes_or_none=[*volumes, *claims.values()] if claims else pod.spec.volumes_or_none,
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _belongs_to_template(change: pod_changes.Change) -> bool:
    """True for devices, claims and mounts, which quotas and schedulers count, and the mark of a pod without rails."""
    if change.entry == claim_requests.ENTRY:
        return True
    if isinstance(change, pod_changes.AddResource):
        return change.entry.startswith(("devices", "resources."))
    if isinstance(change, pod_changes.SetAnnotation):
        return change.key == names.RAILS
    return isinstance(change, pod_changes.AddVolume | pod_changes.AddMount) and change.entry.startswith("mounts.")


# --- templates that are immutable (docs/interface.md 3.5) ---------------------------------------------------------
# `kubectl apply` and `kubectl replace` send lists as they are in the author's manifest, without the devices and mounts
# that railwright added at creation. Additions are: railwright's volumes and their mounts by name, the label copied from
# the workload, annotations of its topology, claims that name its templates, and devices. GPUs that such a claim
# replaced are missing in the stored template. A device is an addition if the policy or a network names its resource
# now, or if the manifest that was applied last does not request it.

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # kubectl's own annotation: the manifest as JSON
_RESOURCE_KEYS = ("requests", "limits")
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_JSON_DECODER = msgspec.json.Decoder()

Tree = dict[str, Any]


def lacks_only_additions(
    template: templates.Template,
    stored: templates.Template,
    applied: templates.Template | None,
    resources: Collection[str],
) -> bool:
    """True if the update equals the stored template without railwright's additions.

    `applied` is the template in the manifest that kubectl applied to the stored object, or None. `resources` are the
    devices that railwright may have added under the current policy and networks.
    """
    if template.label != stored.label:
        return False
    try:
        new, old = _complete(_JSON_DECODER.decode(template.raw)), _complete(_JSON_DECODER.decode(stored.raw))
        manifest = None if applied is None else _complete(_JSON_DECODER.decode(applied.raw))
        if stored.inherited is not None and template.inherited == stored.inherited:  # the label may be a copy
            _drop_unless_written(old, new, "labels", names.FABRIC)
        if old["metadata"]["annotations"].get(names.RAILS) == names.RAILS_NONE:  # marks a template without rails
            _drop_unless_written(old, new, "annotations", names.RAILS)
        for key in intent.read_topology(stored.pod).annotations:
            _drop_unless_written(old, new, "annotations", key)
        for tree in (old, new):  # railwright replaces the record that an author has copied from another workload
            tree["metadata"]["annotations"].pop(names.TOPOLOGY, None)
        _remove_additions(old, new, manifest, resources)
        return bool(old == new)
    except _UNREADABLE:
        return False


def read_applied(workload: templates.Workload) -> Mapping[str, templates.Template]:
    """Return the templates of the manifest that kubectl applied to a workload, by title. {} if it cannot be read."""
    manifest = workload.metadata.annotations.get(LAST_APPLIED)
    if manifest is None:
        return {}
    try:
        workload_manifest = templates.read(workload.kind, manifest.encode())
    except (templates.UnreadableError, UnicodeEncodeError):
        return {}
    return {template.title: template for template in workload_manifest.templates}


def _drop_unless_written(old: Tree, new: Tree, field: str, key: str) -> None:
    """Remove a key of metadata from the stored template, if the new one lacks it."""
    if key not in new["metadata"][field]:
        old["metadata"][field].pop(key, None)


def _remove_additions(old: Tree, new: Tree, manifest: Tree | None, resources: Collection[str]) -> None:
    """Remove railwright's volumes, mounts, claims and devices from the stored template, if the new one lacks them."""
    claims = _remove_claims(old["spec"], new["spec"])
    old["spec"]["volumes"] = _drop_added(old["spec"]["volumes"], new["spec"]["volumes"])
    new_containers = _index_containers(new)
    manifest_containers = {} if manifest is None else _index_containers(manifest)
    for name, container in _index_containers(old).items():
        if name in new_containers:
            container["volumeMounts"] = _drop_added(container["volumeMounts"], new_containers[name]["volumeMounts"])
            current, in_manifest = new_containers[name]["resources"], manifest_containers.get(name, {}).get("resources")
            _remove_devices(container["resources"], current, in_manifest, resources)
            _restore_gpus(container["resources"], current, claims)


def _remove_claims(old: Tree, new: Tree) -> Mapping[str, int]:
    """Remove the claims that name templates of railwright, and return the number of GPUs by claim."""
    remaining = {claim.get("name") for claim in new["resourceClaims"]}
    added = {
        claim["name"]: claim_templates.read_accelerators(claim.get("resourceClaimTemplateName") or "")
        for claim in old["resourceClaims"]
        if claim.get("name") not in remaining
        and claim_templates.is_own_name(claim.get("resourceClaimTemplateName") or "")
    }
    old["resourceClaims"] = [claim for claim in old["resourceClaims"] if claim.get("name") not in added]
    return added


def _restore_gpus(old: Tree, new: Tree, claims: Mapping[str, int]) -> None:
    """Give a container the GPUs that the claims replaced, as the new template requests them."""
    numbers = [claims[claim["name"]] for claim in old["claims"] if claim["name"] in claims]
    old["claims"] = [claim for claim in old["claims"] if claim["name"] not in claims]
    if not numbers:
        return
    missing = {name for key in _RESOURCE_KEYS for name in new[key] if "/" in name and name not in old[key]}
    for resource in missing:
        amounts = {_parse_amount(new[key][resource]) for key in _RESOURCE_KEYS if resource in new[key]}
        if amounts == {numbers[0]}:
            for key in _RESOURCE_KEYS:
                if resource in new[key]:
                    old[key][resource] = new[key][resource]


def _remove_devices(old: Tree, new: Tree, manifest: Tree | None, resources: Collection[str]) -> None:
    """Set each device that was added, or that has a raised request, to the amount in the new template."""
    for resource in [name for name in old["limits"] if "/" in name or name.startswith(devices.HUGE_PAGES)]:
        amount = _parse_amount(old["limits"][resource])
        if not amount or amount != _parse_amount(old["requests"].get(resource)):
            continue  # railwright sets request and limit, and never "0", which is an author's opt-out
        is_known = resource in resources or (manifest is not None and _requests_less(manifest, resource, amount))
        if is_known and _requests_less(new, resource, amount):
            for key in _RESOURCE_KEYS:
                old[key].pop(resource)
                if resource in new[key]:
                    old[key][resource] = new[key][resource]


def _requests_less(resources: Tree, resource: str, amount: int) -> bool:
    """True if a container requests less of a resource than `amount`, or lacks its request or its limit.

    "0" is an opt-out and does not count as a smaller amount.
    """
    amounts = [_parse_amount(resources[key][resource]) for key in _RESOURCE_KEYS if resource in resources[key]]
    readable = [value for value in amounts if value is not None and 0 < value <= amount]
    return len(readable) == len(amounts) and (len(amounts) < len(_RESOURCE_KEYS) or min(readable) < amount)


def _parse_amount(text: Any) -> int | None:
    if text is None:
        return None
    try:
        return quantity.parse_units(text)
    except quantity.InvalidQuantityError:
        return None


def _drop_added(old: Sequence[Tree], new: Sequence[Tree]) -> list[Tree]:
    """Return a list of volumes or mounts without railwright's elements that the new list lacks."""
    remaining = {element.get("name", "") for element in new}
    return [
        element
        for element in old
        if element.get("name") in remaining or not element.get("name", "").startswith(names.VOLUME_PREFIX)
    ]


def _index_containers(template: Tree) -> Mapping[str, Tree]:
    return {container.get("name", ""): container for container in template["spec"]["containers"]}


def _complete(tree: Any) -> Tree:
    """Return a copy with every map and list to which railwright may have added something. Absent ones are empty.

    The types are those of the views, because the template was decoded as a view before.
    """
    template = _add_defaults(tree, ("metadata", {}), ("spec", {}))
    template["metadata"] = _add_defaults(template["metadata"], ("labels", {}), ("annotations", {}))
    for key in ("labels", "annotations"):
        template["metadata"][key] = {**template["metadata"][key]}
    template["spec"] = _add_defaults(template["spec"], ("volumes", []), ("containers", []), ("resourceClaims", []))
    template["spec"]["containers"] = [_complete_container(container) for container in template["spec"]["containers"]]
    return template


def _complete_container(tree: Tree) -> Tree:
    container = _add_defaults(tree, ("volumeMounts", []), ("resources", {}))
    container["resources"] = _add_defaults(
        container["resources"], ("claims", []), *((key, {}) for key in _RESOURCE_KEYS)
    )
    for key in _RESOURCE_KEYS:
        container["resources"][key] = {**container["resources"][key]}
    return container


def _add_defaults(tree: Tree, *members: tuple[str, Any]) -> Tree:
    """Return a copy of an object that has these members, empty by default."""
    return {**tree, **{key: tree.get(key) or empty for key, empty in members}}
