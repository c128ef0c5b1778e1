"""Reads the pod templates of a workload, each with its path, its inherited label and its controller's additions.

Also compares the templates of an update with those of the stored object.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators
from railwright.fabric.workloads import frameworks

_MAX_NAME = 63  # characters of a member's name; Kubernetes allows no longer names


UnreadableError = frameworks.UnreadableError


class TooManyEntriesError(UnreadableError):
    """Raised for a workload whose lists have too many pod templates. The text names the workload and the fix."""


class PodTemplate(views.View, frozen=True):
    """A pod template as its author wrote it."""

    metadata: views.ObjectMeta | None = None
    spec: views.PodSpec | None = None


class Template(msgspec.Struct, frozen=True):
    """One template of a workload, with its path in the workload and the additions of the controller."""

    title: str  # path of the template in messages
    origin: frameworks.TemplateOrigin
    written: PodTemplate
    inherited: str | None  # the opt-in label of the closest parent
    above: Sequence[tuple[str, views.ObjectMeta]] = ()  # path and metadata of its parents, outermost first
    requested: frozenset[str] = (
        frozenset()
    )  # by the containers of all templates: `accelerators.list_requested_by_containers`

    @property
    def pointer(self) -> str:
        """Return the JSON pointer of the template."""
        return "".join([f"/{frameworks.escape_key(str(step))}" for step in self.origin.steps])

    @property
    def pod(self) -> views.Pod:
        """Return the template as a view of a pod."""
        return views.Pod(metadata=self.written.metadata or _NO_METADATA, spec=self.written.spec or _NO_SPEC)

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the pods made from this template: its own, or the one that they inherit."""
        return self.pod.metadata.labels.get(names.FABRIC, self.inherited)


class Workload(msgspec.Struct, frozen=True):
    """A workload with its templates."""

    kind: frameworks.WorkloadKind
    tree: Any  # plain data
    metadata: views.ObjectMeta
    templates: tuple[Template, ...]

    @property
    def label(self) -> str | None:
        """Return the opt-in label of the object itself."""
        return self.metadata.labels.get(names.FABRIC)


class _ObjectWithMetadata(views.View, frozen=True):
    metadata: views.ObjectMeta | None = None


_NO_METADATA, _NO_SPEC = views.ObjectMeta(), views.PodSpec()


def read_workload(kind: frameworks.WorkloadKind, tree: Any) -> Workload:
    """Return the workload in `tree`, which is plain data. Raises UnreadableError, or TooManyEntriesError."""
    metadata = _convert_to_view(tree, _ObjectWithMetadata, "").metadata or _NO_METADATA
    start = frameworks.TemplateContext(metadata.name or metadata.generate_name, "", 0, tree.get("spec"))
    origins = list(itertools.islice(frameworks.list_origins(kind, tree, start), frameworks.MAX_ENTRIES + 1))
    if len(origins) > frameworks.MAX_ENTRIES:
        if metadata.labels.get(names.FABRIC) == names.FABRIC_NONE:
            return Workload(kind, tree, metadata, ())
        raise TooManyEntriesError(
            f"{kind.name} {metadata.name or f'{metadata.generate_name}*'}: its lists have more than "
            f"{frameworks.MAX_ENTRIES} entries for pod templates; use `replicas` for equal templates, split it into "
            f"several workloads, or opt out with label {names.FABRIC}: {names.FABRIC_NONE}"
        )
    parents: dict[int, views.ObjectMeta] = {}
    templates = [_read_template(origin, parents) for origin in origins if origin.ancestors[-1]]
    requested = accelerators.list_requested_by_containers(
        container for template in templates for container in template.pod.spec.containers
    )
    with_requests = [msgspec.structs.replace(template, requested=requested) for template in templates]
    return Workload(kind, tree, metadata, tuple(with_requests))


def find_changed_templates(workload: Workload, before: Workload | None) -> tuple[Template, ...]:
    """Return the templates that an update changed; all of them for a new workload, or if the fabric label changed."""
    if before is None or (workload.label is not None and workload.label != before.label):
        return workload.templates
    previous = {template.title: template.origin.template for template in before.templates}
    return tuple(
        [template for template in workload.templates if template.origin.template != previous.get(template.title)]
    )


def _read_template(origin: frameworks.TemplateOrigin, parents: dict[int, views.ObjectMeta]) -> Template:
    """Return a template. `parents` has the metadata of the objects that contain templates, by their identity."""
    title, label, above = "", None, list[tuple[str, views.ObjectMeta]]()
    for parent, step, child in zip(origin.ancestors, origin.steps, origin.ancestors[1:], strict=False):
        if isinstance(parent, dict) and "metadata" in parent:
            if id(parent) not in parents:
                parents[id(parent)] = _convert_to_view(parent, _ObjectWithMetadata, title).metadata or _NO_METADATA
            metadata = parents[id(parent)]
            label = metadata.labels.get(names.FABRIC, label)
            above.append((title, metadata))
        if isinstance(step, int):
            title += f"[{frameworks.read_name(child, origin.path)[:_MAX_NAME] or step}]"
        else:
            title += f"{'.' if title else ''}{step[:_MAX_NAME]}"
    value = origin.template if origin.path.pod_spec else origin.ancestors[-1]
    return Template(title, origin, _convert_to_view(value, PodTemplate, title), label, above)


def _convert_to_view(value: Any, view: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, view)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableError(f"{path or 'the object'}: {error}") from None
