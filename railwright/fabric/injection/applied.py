"""The pod as it will be: the changes of a plan, done to its view.

Owns what each change means for the fields of the views. The JSON Patch says the same to the API server; a test holds
the two together.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import model


def apply(pod: views.Pod, changes: Iterable[model.AnyChange]) -> views.Pod:
    """The pod's view after the changes, in their order."""
    for change in changes:
        pod = _APPLY[type(change)](pod, change)
    return pod


def _annotation(pod: views.Pod, change: model.SetAnnotation) -> views.Pod:
    annotations = {**pod.metadata.annotations, change.key: change.value}
    return _with(pod, metadata=_with(pod.metadata, annotations_or_none=annotations))


def _resource(container: views.Container, change: model.AddResource) -> views.Container:
    there = container.resources or views.ResourceRequirements()
    added = {change.resource: str(change.quantity)}
    resources = _with(there, requests_or_none={**there.requests, **added}, limits_or_none={**there.limits, **added})
    return _with(container, resources=resources)


def _volume(pod: views.Pod, change: model.AddVolume) -> views.Pod:
    volume = msgspec.convert(change.volume, views.Volume)
    return _with(pod, spec=_with(pod.spec, volumes_or_none=[*pod.spec.volumes, volume]))


def _init_container(pod: views.Pod, change: model.AddInitContainer) -> views.Pod:
    added = msgspec.convert(change.init_container, views.InitContainer)
    return _with(pod, spec=_with(pod.spec, init_containers=[*(pod.spec.init_containers or ()), added]))


def _mount(container: views.Container, change: model.AddMount) -> views.Container:
    mount = msgspec.convert(change.mount, views.VolumeMount)
    return _with(container, volume_mounts_or_none=[*container.volume_mounts, mount])


def _capability(container: views.Container, change: model.AddCapability) -> views.Container:
    security = container.security_context or views.SecurityContext()
    there = security.capabilities or views.Capabilities()
    capabilities = _with(there, add=[*(there.add or ()), change.capability])
    return _with(container, security_context=_with(security, capabilities=capabilities))


def _privileged(container: views.Container, _: model.SetPrivileged) -> views.Container:
    security = container.security_context or views.SecurityContext()
    return _with(container, security_context=_with(security, privileged=True))


def _env(container: views.Container, change: model.SetEnv) -> views.Container:
    entry = views.EnvVar(name=change.name, value=change.value)
    env = [*container.env]
    if change.index is None:
        env.append(entry)
    else:
        env[change.index] = entry
    return _with(container, env_or_none=env)


def _unset(container: views.Container, change: model.UnsetEnv) -> views.Container:
    env = [*container.env]
    del env[change.index]
    return _with(container, env_or_none=env)


def _inside(
    edit: Callable[[views.Container, Any], views.Container],
) -> Callable[[views.Pod, Any], views.Pod]:
    """The same for a pod: the edit of the container a change names."""

    def on_pod(pod: views.Pod, change: Any) -> views.Pod:
        containers = [*pod.spec.containers]
        containers[change.container] = edit(containers[change.container], change)
        return _with(pod, spec=_with(pod.spec, containers_or_none=containers))

    return on_pod


_APPLY: Mapping[type[model.Change], Callable[[views.Pod, Any], views.Pod]] = {
    model.SetAnnotation: _annotation,
    model.AddResource: _inside(_resource),
    model.AddVolume: _volume,
    model.AddInitContainer: _init_container,
    model.AddMount: _inside(_mount),
    model.AddCapability: _inside(_capability),
    model.SetPrivileged: _inside(_privileged),
    model.SetEnv: _inside(_env),
    model.UnsetEnv: _inside(_unset),
}

_View = TypeVar("_View", bound=views.View)


def _with(view: _View, **fields: Any) -> _View:
    return msgspec.structs.replace(view, **fields)
