"""Base views of the objects that state the size of a gang. Each framework's file has the views of its own kinds.

There may be tens of thousands of these objects, so only the needed fields are decoded. Some custom resources do not
validate their templates, so labels and annotations may have values that are not text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric import views


class Tags(views.View, frozen=True):
    """metadata of a template. Values may have any type, because not every custom resource validates them."""

    labels: Any = None
    annotations: Any = None


class TemplateSpec(views.View, frozen=True):
    """The fields of a pod template's spec that name a gang."""

    scheduling_group: views.SchedulingGroup | None = None
    workload_ref: views.WorkloadReference | None = None


class Template(views.View, frozen=True):
    """The fields of a pod template that name a gang."""

    metadata: Tags | None = None
    spec: TemplateSpec | None = None

    def list_tags(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels, then the annotations, without values that are not text."""
        metadata = self.metadata or Tags()
        for field in (metadata.labels, metadata.annotations):
            entries = field if isinstance(field, dict) else {}
            yield {key: value for key, value in entries.items() if isinstance(value, str)}


class Replicas(views.View, frozen=True):
    """A task or replica type: a number of pods (default 1) from a template."""

    replicas: int | None = None
    template: Template | None = None


class Workload(views.View, frozen=True):
    """An object that owns pods or groups of pods. Views of its kinds add a spec."""

    metadata: views.Identity = views.Identity()
