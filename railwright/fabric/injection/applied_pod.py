"""A pod as the mutators so far have changed it, and the application of their changes.

The API server applies the JSON Patch that is made of the same changes. A test compares the two results.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import pod_changes
from railwright.fabric.multus import annotation, network_selection

_NO_SECURITY = views.SecurityContext()
_View = TypeVar("_View", bound=views.View)


class AppliedPod(views.Pod, frozen=True):
    """The view of a pod after all changes so far. Each mutator gets the pod that the mutators before it made."""

    networks: tuple[network_selection.Selection, ...] = ()  # of its networks annotation

    @property
    def host_network(self) -> bool:
        """True if the pod uses the host's network namespace."""
        return bool(self.spec.host_network)

    @property
    def attached(self) -> tuple[network_selection.Selection, ...]:
        """Return the networks that Multus attaches. It ignores pods on the host network."""
        return () if self.spec.host_network else self.networks

    def container(self, index: int) -> views.Container:
        """Return an app container."""
        return self.spec.containers[index]

    def runs_as_root(self, index: int) -> bool:
        """True unless the pod or the container sets another user. The user of the image is unknown and ignored."""
        pod_context = self.spec.security_context or _NO_SECURITY
        container_context = self.container(index).security_context or _NO_SECURITY
        user = pod_context.run_as_user if container_context.run_as_user is None else container_context.run_as_user
        must_not_be_root = (
            pod_context.run_as_non_root
            if container_context.run_as_non_root is None
            else container_context.run_as_non_root
        )
        return not user and not must_not_be_root


def read(pod: views.Pod, namespace: str) -> AppliedPod:
    """Return a pod before any change. Raises RefusedError for an invalid networks annotation."""
    text = pod.metadata.annotations.get(names.NETWORKS, "")
    try:
        networks = annotation.parse(text, namespace)
    except network_selection.InvalidNetworksError as error:
        raise pod_changes.refuse_networks(text, error) from None
    return AppliedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status, networks=networks)


def apply(pod: AppliedPod, changes: Iterable[pod_changes.AnyChange]) -> AppliedPod:
    """Return the pod after the changes, applied in order."""
    draft = _Draft(pod)
    for change in changes:
        _APPLY[type(change)](draft, change)
    return draft.build()


_ContainerKey = tuple[bool, int]  # True for init containers; index in their list


class _Draft:
    """Collects the changes of a pod, so that each part of its view is copied at most once."""

    def __init__(self, pod: AppliedPod) -> None:
        self._pod = pod
        self._metadata: dict[str, Any] = {}  # fields of the views that differ
        self._spec: dict[str, Any] = {}
        self._containers: dict[_ContainerKey, dict[str, Any]] = {}
        self._amounts: dict[_ContainerKey, dict[str, str | None]] = {}  # by container and resource; None: removed
        self._claims: list[views.PodResourceClaim] | None = None
        self._networks = pod.networks

    def build(self) -> AppliedPod:
        pod = self._pod
        for key, amounts in self._amounts.items():
            self._set_amounts(key, amounts)
        if self._claims is not None:
            self._spec["resource_claims"] = self._claims
        if self._containers:
            lists: dict[bool, list[Any]] = {False: [*pod.spec.containers]}
            if any(init for init, _ in self._containers):
                lists[True] = self._spec["init_containers"] = self._copy_init_containers()
            for (init, index), changed in self._containers.items():
                lists[init][index] = msgspec.structs.replace(lists[init][index], **changed)
            self._spec["containers_or_none"] = lists[False]
        return AppliedPod(
            metadata=msgspec.structs.replace(pod.metadata, **self._metadata) if self._metadata else pod.metadata,
            spec=msgspec.structs.replace(pod.spec, **self._spec) if self._spec else pod.spec,
            status=pod.status,
            networks=self._networks,
        )

    def set_annotation(self, change: pod_changes.SetAnnotation) -> None:
        metadata = self._metadata
        if "annotations_or_none" not in metadata:
            metadata["annotations_or_none"] = {**self._pod.metadata.annotations}
        metadata["annotations_or_none"][change.key] = change.value

    def set_networks(self, change: pod_changes.SetNetworks) -> None:
        self.set_annotation(change)
        self._networks = change.selections

    def add_volume(self, change: pod_changes.AddVolume) -> None:
        spec = self._spec
        if "volumes_or_none" not in spec:
            spec["volumes_or_none"] = [*self._pod.spec.volumes]
        spec["volumes_or_none"].append(msgspec.convert(change.volume, views.Volume))

    def add_init_container(self, change: pod_changes.AddInitContainer) -> None:
        self._spec["init_containers"] = self._copy_init_containers()
        self._spec["init_containers"].append(msgspec.convert(change.init_container, views.InitContainer))

    def add_mount(self, change: pod_changes.AddMount) -> None:
        fields = self._get_fields(False, change.container)
        if "volume_mounts_or_none" not in fields:
            fields["volume_mounts_or_none"] = [*self._pod.container(change.container).volume_mounts]
        fields["volume_mounts_or_none"].append(msgspec.convert(change.mount, views.VolumeMount))

    def add_resource(self, change: pod_changes.AddResource) -> None:
        self._amounts.setdefault((change.init, change.container), {})[change.resource] = str(change.quantity)

    def remove_resource(self, change: pod_changes.RemoveResource) -> None:
        self._amounts.setdefault((change.init, change.container), {})[change.resource] = None

    def set_claim(self, change: pod_changes.SetClaim) -> None:
        claims = self._get_claims()
        entry = views.PodResourceClaim(name=change.name, resource_claim_template_name=change.template)
        if change.index is None:
            claims.append(entry)
        else:
            claims[change.index] = entry

    def use_claim(self, change: pod_changes.UseClaim) -> None:
        key = (change.init, change.container)
        self._set_container_claims(key, lambda claims: [*claims, views.ContainerClaim(name=change.claim)])

    def remove_claims(self, change: pod_changes.RemoveClaims) -> None:
        self._claims = [claim for claim in self._get_claims() if claim.name not in change.claims]
        for init, containers in ((False, self._pod.spec.containers), (True, self._pod.spec.init_containers or ())):
            for index in range(len(containers)):
                self._set_container_claims(
                    (init, index), lambda claims: [claim for claim in claims if claim.name not in change.claims]
                )

    def add_capability(self, change: pod_changes.AddCapability) -> None:
        fields = self._get_fields(False, change.container)
        security = fields.get("security_context", self._pod.container(change.container).security_context)
        security = security or _NO_SECURITY
        capabilities = security.capabilities or views.Capabilities()
        extended = _replace(capabilities, add=[*(capabilities.add or ()), change.capability])
        fields["security_context"] = _replace(security, capabilities=extended)

    def set_privileged(self, change: pod_changes.SetPrivileged) -> None:
        fields = self._get_fields(False, change.container)
        security = fields.get("security_context", self._pod.container(change.container).security_context)
        fields["security_context"] = _replace(security or _NO_SECURITY, privileged=True)

    def set_env(self, change: pod_changes.SetEnv) -> None:
        env = self._get_env(change.container)
        value = None if change.field_path else change.value
        entry = views.EnvVar(name=change.name, value=value, value_from=change.source)
        if change.index is None:
            env.append(entry)
        else:
            env[change.index] = entry

    def unset_env(self, change: pod_changes.UnsetEnv) -> None:
        del self._get_env(change.container)[change.index]

    def _copy_init_containers(self) -> list[Any]:
        return [*(self._spec.get("init_containers") or self._pod.spec.init_containers or ())]

    def _set_amounts(self, key: _ContainerKey, amounts: Mapping[str, str | None]) -> None:
        resources = self._get_resources(key)
        requests, limits = (
            {name: amount for name, amount in {**before, **amounts}.items() if amount is not None}
            for before in (resources.requests, resources.limits)
        )
        self._get_fields(*key)["resources"] = _replace(resources, requests_or_none=requests, limits_or_none=limits)

    def _set_container_claims(
        self, key: _ContainerKey, change: Callable[[list[views.ContainerClaim]], list[views.ContainerClaim]]
    ) -> None:
        resources = self._get_resources(key)
        claims = change(resources.claims)
        if claims != resources.claims:
            self._get_fields(*key)["resources"] = _replace(resources, claims_or_none=claims)

    def _get_resources(self, key: _ContainerKey) -> views.ResourceRequirements:
        init, index = key
        resources: views.ResourceRequirements | None = self._containers.get(key, {}).get(
            "resources", self._pod.spec.get_container(index, init=init).resources
        )
        return resources or views.ResourceRequirements()

    def _get_claims(self) -> list[views.PodResourceClaim]:
        if self._claims is None:
            self._claims = [*(self._pod.spec.resource_claims or ())]
        return self._claims

    def _get_env(self, index: int) -> list[views.EnvVar]:
        fields = self._get_fields(False, index)
        if "env_or_none" not in fields:
            fields["env_or_none"] = [*self._pod.container(index).env]
        env: list[views.EnvVar] = fields["env_or_none"]
        return env

    def _get_fields(self, init: bool, index: int) -> dict[str, Any]:  # noqa: FBT001 - the two parts of a key
        return self._containers.setdefault((init, index), {})


_APPLY: Mapping[type[pod_changes.Change], Callable[[_Draft, Any], None]] = {
    pod_changes.SetAnnotation: _Draft.set_annotation,
    pod_changes.SetNetworks: _Draft.set_networks,
    pod_changes.AddResource: _Draft.add_resource,
    pod_changes.RemoveResource: _Draft.remove_resource,
    pod_changes.SetClaim: _Draft.set_claim,
    pod_changes.UseClaim: _Draft.use_claim,
    pod_changes.RemoveClaims: _Draft.remove_claims,
    pod_changes.AddVolume: _Draft.add_volume,
    pod_changes.AddInitContainer: _Draft.add_init_container,
    pod_changes.AddMount: _Draft.add_mount,
    pod_changes.AddCapability: _Draft.add_capability,
    pod_changes.SetPrivileged: _Draft.set_privileged,
    pod_changes.SetEnv: _Draft.set_env,
    pod_changes.UnsetEnv: _Draft.unset_env,
}


def _replace(view: _View, **fields: Any) -> _View:
    return msgspec.structs.replace(view, **fields)
