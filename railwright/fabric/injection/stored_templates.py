"""An update of a template that cannot change: does it differ from the stored one only by what railwright added?

`kubectl apply` and `kubectl replace` send lists as the author's manifest has them, without the devices and mounts that
were added at creation. Owns the comparison, and what counts as added: our volumes and their mounts by name, the label
that was copied from the workload, and devices. A device counts as added where the policy or a network names its
resource now, or where the manifest that was last applied does not ask for it. Knows no review and no patch.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, quantity
from railwright.fabric.injection import mounts, templates

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # kubectl's own annotation: the manifest as JSON
_VOLUMES = frozenset({mounts.INFINIBAND, mounts.SHARED_MEMORY})  # those that templates get
_PARTS = ("requests", "limits")
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ANYTHING = msgspec.json.Decoder()

Tree = dict[str, Any]


def lacks_only_additions(
    template: templates.Template,
    stored: templates.Template,
    applied: templates.Template | None,
    resources: Collection[str],
) -> bool:
    """True where the stored template without what railwright added is the template of the update.

    `applied` is the template in the manifest that kubectl applied to the stored object, None where there is none;
    `resources` are the devices that railwright may have added by what is known now.
    """
    if template.label != stored.label:
        return False
    try:
        new, old = _completed(_ANYTHING.decode(template.raw)), _completed(_ANYTHING.decode(stored.raw))
        manifest = None if applied is None else _completed(_ANYTHING.decode(applied.raw))
        if stored.inherited is not None and template.inherited == stored.inherited:  # then the label may be a copy
            _take_back_label(old, new)
        _take_back_parts(old, new, manifest, resources)
        return bool(old == new)
    except _UNREADABLE:
        return False


def applied_templates(workload: templates.Workload) -> Mapping[str, templates.Template]:
    """The templates, by title, of the manifest that kubectl applied to a workload; none where it cannot be read."""
    written = workload.metadata.annotations.get(APPLIED)
    if written is None:
        return {}
    try:
        found = templates.read(workload.kind, written.encode())
    except (templates.UnreadableError, UnicodeEncodeError):
        return {}
    return {each.title: each for each in found.templates}


def _take_back_label(old: Tree, new: Tree) -> None:
    if names.FABRIC not in new["metadata"]["labels"]:
        old["metadata"]["labels"].pop(names.FABRIC, None)


def _take_back_parts(old: Tree, new: Tree, manifest: Tree | None, resources: Collection[str]) -> None:
    """Take our volumes, mounts and devices out of the stored template as far as the new one lacks them."""
    old["spec"]["volumes"] = _without(old["spec"]["volumes"], new["spec"]["volumes"])
    theirs, authors = _by_name(new), None if manifest is None else _by_name(manifest)
    for name, container in _by_name(old).items():
        if name in theirs:
            container["volumeMounts"] = _without(container["volumeMounts"], theirs[name]["volumeMounts"])
            author = authors[name]["resources"] if authors is not None and name in authors else None
            _take_back_devices(container["resources"], theirs[name]["resources"], author, resources)


def _take_back_devices(old: Tree, new: Tree, author: Tree | None, resources: Collection[str]) -> None:
    """Give each device that was added, or whose request was raised, the amount that the new template has."""
    for resource in [name for name in old["limits"] if "/" in name]:
        amount = _amount(old["limits"][resource])
        if not amount or amount != _amount(old["requests"].get(resource)):
            continue  # what railwright adds is request and limit, and never "0", which is an author's opt-out
        is_known = resource in resources or (author is not None and _asks_less(author, resource, amount))
        if is_known and _asks_less(new, resource, amount):
            for part in _PARTS:
                old[part].pop(resource)
                if resource in new[part]:
                    old[part][resource] = new[part][resource]


def _asks_less(asking: Tree, resource: str, amount: int) -> bool:
    """True where a container asks for less of a resource than `amount`, or lacks its request or its limit.

    "0" is an opt-out and no smaller amount.
    """
    there = [_amount(asking[part][resource]) for part in _PARTS if resource in asking[part]]
    readable = [each for each in there if each is not None and 0 < each <= amount]
    return len(readable) == len(there) and (len(there) < len(_PARTS) or min(readable) < amount)


def _amount(written: Any) -> int | None:
    if written is None:
        return None
    try:
        return quantity.whole(written)
    except quantity.InvalidQuantityError:
        return None


def _without(old: Sequence[Tree], new: Sequence[Tree]) -> list[Tree]:
    """A list of volumes or mounts without those of ours that the new list lacks."""
    added = _VOLUMES.difference(each.get("name", "") for each in new)
    return [each for each in old if each.get("name") not in added]


def _by_name(template: Tree) -> Mapping[str, Tree]:
    return {each.get("name", ""): each for each in template["spec"]["containers"]}


def _completed(written: Any) -> Tree:
    """A copy that has every map and list in which something may have been added; an absent one is an empty one.

    The types are those of the views, as which the template was decoded before.
    """
    template = _with(written, ("metadata", {}), ("spec", {}))
    template["metadata"] = _with(template["metadata"], ("labels", {}))
    template["metadata"]["labels"] = {**template["metadata"]["labels"]}
    template["spec"] = _with(template["spec"], ("volumes", []), ("containers", []))
    template["spec"]["containers"] = [_completed_container(each) for each in template["spec"]["containers"]]
    return template


def _completed_container(written: Tree) -> Tree:
    container = _with(written, ("volumeMounts", []), ("resources", {}))
    container["resources"] = _with(container["resources"], *((part, {}) for part in _PARTS))
    for part in _PARTS:
        container["resources"][part] = {**container["resources"][part]}
    return container


def _with(written: Tree, *members: tuple[str, Any]) -> Tree:
    """A copy of an object that has these members, be they empty."""
    return {**written, **{key: written.get(key) or empty for key, empty in members}}
