"""Warns of keys without effect: misspelt or misplaced keys of railwright, and keys that Multus does not know.

Authors of such keys expect an effect, for example an opt-out. Values are not checked here.
"""

import contextlib
import difflib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from railwright.fabric import names, text, views
from railwright.fabric.injection import templates
from railwright.fabric.multus import network_selection
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks

PREFIX: Final = f"{names.DOMAIN}/"
LABEL, ANNOTATION = "label", "annotation"
_OWN_KEYS = (names.INJECTION, names.TOPOLOGY, names.NCCL_CONF)
_TYPE_BY_KEY = {names.FABRIC: LABEL, **dict.fromkeys(names.POD_KEYS, ANNOTATION)}  # candidates for a misspelt key
_VALID_LABELS = frozenset({names.FABRIC})
_NAMESPACE_LABELS = frozenset({names.FABRIC, names.UNINJECTED})
_VALID_ANNOTATIONS = frozenset({*names.POD_KEYS, *_OWN_KEYS})
_MAX_WARNINGS = 3  # the API server limits the total length of warnings
_MAX_VALUE = 24  # characters of a value in a warning
_MAX_KEY = 80  # characters of a key in a warning: a valid key of this prefix has at most 77
_MIN_SIMILARITY = 0.6  # difflib's ratio
_MIN_SHARED_CHARACTERS = 3  # characters that a key shares with the one that was meant: `guid` with `infiniband-guid`
_MIN_DOMAIN_SIMILARITY = 0.75  # `railwright/fabric` and `railwrite.io/fabric`, not `railway.app/fabric`
_KEY_NAMES = frozenset(key.removeprefix(PREFIX) for key in _TYPE_BY_KEY)
ENDINGS: Final = tuple(f"/{end}" for end in _KEY_NAMES)
"""Endings of railwright's keys, such as `/fabric`. A key that ends so may have a misspelt `railwright.io`."""
_MORE_KEYS = reasons.Reason(
    AdmissionCode.KEY_WITHOUT_EFFECT, "and more keys without effect", fix="fix these first to see them"
)
CODES: Final = frozenset({AdmissionCode.KEY_WITHOUT_EFFECT.value, AdmissionCode.LABEL_NOT_PASSED.value})
"""Codes of the warnings in this module, which need no policy and no cluster."""


class KeyWarning(reasons.Reason, frozen=True, omit_defaults=True):
    """A warning about a label or annotation without effect, with its key."""

    type: str = ""  # LABEL or ANNOTATION
    key: str = ""


def check_pod(metadata: views.ObjectMeta) -> tuple[reasons.Reason, ...]:
    """Return warnings about the keys of a pod or of a pod template, and about those in its networks annotation."""
    return _limit_warnings(
        itertools.chain(_check_keys(metadata, _VALID_LABELS, _VALID_ANNOTATIONS), _check_networks(metadata))
    )


def has_wrong_key(metadata: views.ObjectMeta) -> bool:
    """True if a pod has a misspelt or misplaced key of railwright."""
    return any(_check_keys(metadata, _VALID_LABELS, _VALID_ANNOTATIONS))


def _check_networks(metadata: views.ObjectMeta) -> Iterator[reasons.Reason]:
    """Yield a warning about each entry of the networks annotation with a key that Multus does not know."""
    selections: Sequence[network_selection.Selection] = ()
    with contextlib.suppress(network_selection.InvalidNetworksError):  # a pod that opts in is rejected for it
        selections = network_selection.parse_networks(metadata.annotations.get(names.NETWORKS, ""), "")
    for position, selection in enumerate(selections, start=1):
        if selection.unknown_key is not None:
            meant = _find_similar_key(selection.unknown_key.replace("_", "-"), network_selection.KEYS)
            yield KeyWarning(
                AdmissionCode.KEY_WITHOUT_EFFECT,
                f"annotation {names.NETWORKS}: entry {position}: key {text.quote(selection.unknown_key)} "
                "has no effect: Multus has no such key",
                f"did you mean {meant}?" if meant else "remove it",
                ANNOTATION,
                names.NETWORKS,
            )


def check_workload(workload: templates.Workload, before: templates.Workload | None = None) -> Iterator[reasons.Reason]:
    """Yield warnings about the keys of a workload, and of the objects in it that contain pod templates.

    Keys that an update does not change are not reported again: controllers update their objects often.
    """
    previous = {} if before is None else _group_by_parent(before)
    for parent, (metadata, template_metadata) in _group_by_parent(workload).items():
        if parent in previous and _select_railwright_keys(previous[parent][0]) == _select_railwright_keys(metadata):
            continue
        kind = "" if parent else workload.kind.name
        warnings = _limit_warnings(_check_keys(metadata, _VALID_LABELS, _OWN_KEYS, kind, template_metadata))
        for message in warnings:
            yield message.prefix_with(parent) if parent else message


def check_label(
    kind: frameworks.WorkloadKind, label: str | None, templates_read: Sequence[templates.Template]
) -> Iterator[reasons.Reason]:
    """Yield a warning about the fabric label if it does not reach the pods, or if only a template has it.

    Admission adds devices to the templates of a kind only if the object itself has the label.
    """
    lacking = [template for template in templates_read if names.FABRIC not in template.pod.metadata.labels]
    if label is not None and not kind.passes_label and lacking:
        value = text.truncate(label, _MAX_VALUE)
        cause = f"a {kind.name} passes no label to its pods"
        yield reasons.Reason(
            AdmissionCode.LABEL_NOT_PASSED,
            f"label {names.FABRIC} {value!r} of the {kind.name} has no effect: {cause}",
            fix=f"set the label in {lacking[0].title}.metadata.labels",
        )
    if label is None and kind.is_injected and (labelled := [item for item in templates_read if item not in lacking]):
        own = labelled[0].pod.metadata.labels[names.FABRIC]
        if own != names.FABRIC_NONE:
            yield reasons.Reason(
                AdmissionCode.LABEL_IN_TEMPLATE,
                f"label {names.FABRIC} {text.truncate(own, _MAX_VALUE)!r} is in {labelled[0].title} only: its pods "
                "get their rails, but quotas, queues and PodGroups do not count the devices",
                fix=f"set the label in metadata.labels of the {kind.name}",
            )


def explain_uncopied_label(workload: templates.Workload) -> str:
    """Return why the fabric label of an existing workload does not reach its pods, and the fix; "" if it does."""
    kind = workload.kind
    lacking = [template for template in workload.templates if names.FABRIC not in template.pod.metadata.labels]
    if not lacking or not kind.is_injected or workload.label in (None, names.FABRIC_NONE):
        return ""
    problem = f"label {names.FABRIC} {workload.label!r} of the {kind.name} does not reach its pods: "
    if kind.is_frozen:
        return (
            f"{problem}the label was set after the {kind.name} was created, or railwright was not called then, or the "
            f"policy was in mode warn; the template cannot change, so delete the {kind.name}, and create it "
            "again with the label"
        )
    fix = f"set it in {lacking[0].title}.metadata.labels"
    if kind.group == "apps":  # of the other kinds, kubectl restarts none
        metadata = workload.metadata
        restart = f"kubectl -n {metadata.namespace} rollout restart {kind.name.lower()}/{metadata.name}"
        fix = f"to have it copied, restart the {kind.name}: {restart}"
    return (
        f"{problem}the template lacks the label, because railwright was not called or the policy was in mode warn when "
        f"the label was set; {fix}"
    )


def check_stored_workload(workload: templates.Workload) -> Iterator[reasons.Reason]:
    """Yield warnings about the keys of an existing workload, of the objects in it, and of its pod templates."""
    yield from check_label(workload.kind, workload.label, workload.templates)
    yield from check_workload(workload)
    for template in workload.templates:
        for message in check_pod(template.pod.metadata):
            yield message.prefix_with(template.title)


def check_namespace(metadata: views.BriefMeta) -> Iterator[reasons.Reason]:
    """Yield warnings about the keys of a Namespace."""
    no_template = {"": views.ObjectMeta()}
    yield from _limit_warnings(_check_keys(metadata, _NAMESPACE_LABELS, (), "Namespace", no_template))


def _select_railwright_keys(metadata: views.ObjectMeta) -> list[dict[str, str]]:
    maps = (metadata.labels, metadata.annotations)
    return [{key: value for key, value in keys.items() if _is_own_key(key)} for keys in maps]


def _group_by_parent(workload: templates.Workload) -> dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]]:
    """Return, by path of each object that contains templates, its metadata and the metadata of those templates."""
    parents: dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]] = {}
    for template in workload.templates:
        for parent, metadata in template.above:
            parents.setdefault(parent, (metadata, {}))[1][template.title] = template.pod.metadata
    return parents


def _check_keys(
    metadata: views.BriefMeta,
    valid_labels: Collection[str],
    valid_annotations: Collection[str],
    kind: str | None = None,
    template_metadata: Mapping[str, views.ObjectMeta] = {},
) -> Iterator[reasons.Reason]:
    """Yield warnings about railwright's keys that have no effect in the metadata of an object.

    `kind` is None for a pod. Annotations of pods have an effect only in pods and templates, so in other objects they
    cause a warning unless all templates (`template_metadata`, by path) have them.
    """
    rows = ((LABEL, metadata.labels, valid_labels), (ANNOTATION, metadata.annotations, valid_annotations))
    for key_type, keys, valid_keys in rows:
        for key, value in keys.items():
            may_be_own = key.startswith(PREFIX) or key.rpartition("/")[2] in _KEY_NAMES  # hardly one of a pod's keys
            if not may_be_own or key in valid_keys or not _is_own_key(key):
                continue
            if kind is None or key not in names.POD_KEYS:
                yield from _explain_wrong_key(metadata, key_type, key, value)
            elif paths := [path for path, template in template_metadata.items() if key not in template.annotations]:
                templates_meant = f"template ({paths[0]}.metadata)" if len(paths) == 1 else "templates it is meant for"
                cause, fix = _READ_AS[ANNOTATION], f"move it to the annotations of the pod {templates_meant}"
                yield _build_warning(key_type, key, value, f"{cause} of pods", fix, f" of the {kind}" if kind else "")


_READ_AS = {LABEL: "railwright reads it as a label", ANNOTATION: "railwright reads it as an annotation"}
_MOVE = "move it there"
_ANNOTATION_NAMES = ", ".join(key.removeprefix(PREFIX) for key in names.POD_KEYS)
_ALL_KEYS = f"the keys of pods are label {names.FABRIC} and annotations {PREFIX}{_ANNOTATION_NAMES}"


def _explain_wrong_key(metadata: views.BriefMeta, key_type: str, key: str, value: str) -> Iterator[reasons.Reason]:
    """Yield the warning about a key in the wrong place, unless the right place has the same value."""
    if key == names.UNINJECTED:
        yield _build_warning(key_type, key, value, f"{_READ_AS[LABEL]} of the namespace", _MOVE)
    elif key in _OWN_KEYS:
        yield _build_warning(key_type, key, value, "only railwright writes it, as an annotation", "remove it")
    elif key in _TYPE_BY_KEY:
        if (metadata.labels if key_type == ANNOTATION else metadata.annotations).get(key) != value:
            yield _build_warning(key_type, key, value, _READ_AS[_TYPE_BY_KEY[key]], _MOVE)
    else:
        meant = _find_similar_key(key.partition("/")[2], [candidate.removeprefix(PREFIX) for candidate in _TYPE_BY_KEY])
        fix = f"did you mean {_TYPE_BY_KEY[PREFIX + meant]} {PREFIX}{meant}?" if meant else _ALL_KEYS
        yield _build_warning(key_type, key, value, "railwright has no such key", fix)


def _build_warning(key_type: str, key: str, value: str, cause: str, fix: str, owner: str = "") -> KeyWarning:  # noqa: PLR0913, PLR0917 - parts of one sentence
    shown = text.truncate(value, _MAX_VALUE)
    message = f"{key_type} {key[:_MAX_KEY]} {shown!r}{owner} has no effect: {cause}"
    return KeyWarning(AdmissionCode.KEY_WITHOUT_EFFECT, message, fix, key_type, key)


def _is_own_key(key: str) -> bool:
    """True if a key has the domain of railwright, or a misspelling of it before a key that railwright reads."""
    if key.startswith(PREFIX):
        return True
    domain, _, end = key.partition("/")
    return (
        end in _KEY_NAMES
        and len(domain) <= _MAX_KEY
        and difflib.SequenceMatcher(None, domain, names.DOMAIN).ratio() >= _MIN_DOMAIN_SIMILARITY
    )


def _find_similar_key(key: str, candidates: Sequence[str]) -> str:
    """Return the candidate that was probably meant by a key, "" if none is similar."""
    key = key[:_MAX_KEY].casefold()
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(key, by_folded, n=1, cutoff=_MIN_SIMILARITY)
    matches = matches or [
        folded for folded in by_folded if len(part := folded.rstrip("s")) >= _MIN_SHARED_CHARACTERS and part in key
    ]
    matches = matches or [folded for folded in by_folded if len(key) >= _MIN_SHARED_CHARACTERS and key in folded]
    return by_folded[matches[0]] if matches else ""


def _limit_warnings(warnings: Iterator[reasons.Reason]) -> tuple[reasons.Reason, ...]:
    """Return the first warnings. Further keys are not checked, because a pod may have thousands."""
    first_warnings = tuple(itertools.islice(warnings, _MAX_WARNINGS + 1))
    if len(first_warnings) <= _MAX_WARNINGS:
        return first_warnings
    return (*first_warnings[:_MAX_WARNINGS], _MORE_KEYS)
