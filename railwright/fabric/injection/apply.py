"""Applies the changes of a plan to the view of the pod.

The API server applies the JSON Patch that is made of the same changes. A test compares the two results.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import model


def apply(pod: views.Pod, changes: Iterable[model.AnyChange]) -> views.Pod:
    """Return the view of the pod after the changes, applied in order."""
    for change in changes:
        pod = _APPLY[type(change)](pod, change)
    return pod


def _set_annotation(pod: views.Pod, change: model.SetAnnotation) -> views.Pod:
    annotations = {**pod.metadata.annotations, change.key: change.value}
    return _replace(pod, metadata=_replace(pod.metadata, annotations_or_none=annotations))


def _add_resource(container: views.Container, change: model.AddResource) -> views.Container:
    resources = container.resources or views.ResourceRequirements()
    added = {change.resource: str(change.quantity)}
    requests, limits = {**resources.requests, **added}, {**resources.limits, **added}
    return _replace(container, resources=_replace(resources, requests_or_none=requests, limits_or_none=limits))


def _add_volume(pod: views.Pod, change: model.AddVolume) -> views.Pod:
    volume = msgspec.convert(change.volume, views.Volume)
    return _replace(pod, spec=_replace(pod.spec, volumes_or_none=[*pod.spec.volumes, volume]))


def _add_init_container(pod: views.Pod, change: model.AddInitContainer) -> views.Pod:
    added = msgspec.convert(change.init_container, views.InitContainer)
    return _replace(pod, spec=_replace(pod.spec, init_containers=[*(pod.spec.init_containers or ()), added]))


def _add_mount(container: views.Container, change: model.AddMount) -> views.Container:
    mount = msgspec.convert(change.mount, views.VolumeMount)
    return _replace(container, volume_mounts_or_none=[*container.volume_mounts, mount])


def _add_capability(container: views.Container, change: model.AddCapability) -> views.Container:
    security = container.security_context or views.SecurityContext()
    capabilities = security.capabilities or views.Capabilities()
    extended = _replace(capabilities, add=[*(capabilities.add or ()), change.capability])
    return _replace(container, security_context=_replace(security, capabilities=extended))


def _set_privileged(container: views.Container, _: model.SetPrivileged) -> views.Container:
    security = container.security_context or views.SecurityContext()
    return _replace(container, security_context=_replace(security, privileged=True))


def _set_env(container: views.Container, change: model.SetEnv) -> views.Container:
    entry = views.EnvVar(name=change.name, value=change.value)
    env = [*container.env]
    if change.index is None:
        env.append(entry)
    else:
        env[change.index] = entry
    return _replace(container, env_or_none=env)


def _unset_env(container: views.Container, change: model.UnsetEnv) -> views.Container:
    env = [*container.env]
    del env[change.index]
    return _replace(container, env_or_none=env)


def _edit_container(
    edit: Callable[[views.Container, Any], views.Container],
) -> Callable[[views.Pod, Any], views.Pod]:
    """Return a function that applies `edit` to the container that the change names."""

    def edit_pod(pod: views.Pod, change: Any) -> views.Pod:
        containers = [*pod.spec.containers]
        containers[change.container] = edit(containers[change.container], change)
        return _replace(pod, spec=_replace(pod.spec, containers_or_none=containers))

    return edit_pod


_APPLY: Mapping[type[model.Change], Callable[[views.Pod, Any], views.Pod]] = {
    model.SetAnnotation: _set_annotation,
    model.AddResource: _edit_container(_add_resource),
    model.AddVolume: _add_volume,
    model.AddInitContainer: _add_init_container,
    model.AddMount: _edit_container(_add_mount),
    model.AddCapability: _edit_container(_add_capability),
    model.SetPrivileged: _edit_container(_set_privileged),
    model.SetEnv: _edit_container(_set_env),
    model.UnsetEnv: _edit_container(_unset_env),
}

_View = TypeVar("_View", bound=views.View)


def _replace(view: _View, **fields: Any) -> _View:
    return msgspec.structs.replace(view, **fields)
