"""A pod as the mutators so far have changed it, and the draft on which a change is applied.

The API server applies the JSON Patch that is made of the same changes. A test compares the two results.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.reasons import reason

_NO_SECURITY = views.SecurityContext()


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
    value = pod.metadata.annotations.get(names.NETWORKS, "")
    try:
        networks = annotation.parse(value, namespace)
    except network_selection.InvalidNetworksError as error:
        raise refuse_networks(value, error) from None
    return AppliedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status, networks=networks)


def refuse_networks(user_value: str, error: network_selection.InvalidNetworksError) -> reason.RefusedError:
    """Return the refusal of a pod with an invalid networks annotation, or with one that rails cannot be added to."""
    where = f"annotation {names.NETWORKS} {text.quote(user_value)}: " if user_value else ""
    return reason.RefusedError("networks", f"{where}{error}")


ContainerKey = tuple[bool, int]  # True for init containers; index in their list


class Draft:
    """A pod that is being changed. Each part of its view is copied at most once.

    Lists and maps that an `edit_` method returns are the draft's own and are changed by the caller.
    """

    def __init__(self, pod: AppliedPod) -> None:
        self.pod = pod
        self.networks = pod.networks
        self._metadata: dict[str, Any] = {}  # fields of the views that differ
        self._spec: dict[str, Any] = {}
        self._containers: dict[ContainerKey, dict[str, Any]] = {}
        self._amounts: dict[ContainerKey, dict[str, str | None]] = {}  # by container and resource; None: removed

    def build(self) -> AppliedPod:
        """Return the changed pod."""
        pod = self.pod
        for key, amounts in self._amounts.items():
            self._set_amounts(key, amounts)
        if self._containers:
            lists: dict[bool, list[Any]] = {False: [*pod.spec.containers]}
            if any(init for init, _ in self._containers):
                lists[True] = self.edit_list("init_containers")
            for (init, index), changed in self._containers.items():
                lists[init][index] = msgspec.structs.replace(lists[init][index], **changed)
            self._spec["containers_or_none"] = lists[False]
        return AppliedPod(
            metadata=msgspec.structs.replace(pod.metadata, **self._metadata) if self._metadata else pod.metadata,
            spec=msgspec.structs.replace(pod.spec, **self._spec) if self._spec else pod.spec,
            status=pod.status,
            networks=self.networks,
        )

    def edit_keys(self, field: str) -> dict[str, str]:
        """Return the pod's `labels` or `annotations`."""
        name = f"{field}_or_none"
        if name not in self._metadata:
            self._metadata[name] = {**getattr(self.pod.metadata, field)}
        keys: dict[str, str] = self._metadata[name]
        return keys

    def set_field(self, field: str, value: object, key: ContainerKey | None = None) -> None:
        """Set a field of spec, or of a container."""
        self._get_fields(key)[field] = value

    def get_field(self, field: str, key: ContainerKey | None = None) -> Any:
        """Return a field of spec, or of a container, as changed so far."""
        fields = self._get_fields(key)
        if field in fields:
            return fields[field]
        view = self.pod.spec if key is None else self.pod.spec.get_container(key[1], init=key[0])
        return getattr(view, field)

    def edit_list(self, field: str, key: ContainerKey | None = None) -> list[Any]:
        """Return a list of spec, or of a container."""
        fields = self._get_fields(key)
        if field not in fields:
            fields[field] = [*(self.get_field(field, key) or ())]
        entries: list[Any] = fields[field]
        return entries

    def set_amount(self, key: ContainerKey, resource: str, amount: str | None) -> None:
        """Set request and limit of a resource, None to remove them."""
        self._amounts.setdefault(key, {})[resource] = amount

    def set_claims(self, key: ContainerKey, claims: list[views.ContainerClaim]) -> None:
        """Set the claims that a container uses."""
        resources = self.get_resources(key)
        if claims != resources.claims:
            self.set_field("resources", msgspec.structs.replace(resources, claims_or_none=claims), key)

    def get_resources(self, key: ContainerKey) -> views.ResourceRequirements:
        """Return the resources of a container."""
        return self.get_field("resources", key) or views.ResourceRequirements()

    def _set_amounts(self, key: ContainerKey, amounts: Mapping[str, str | None]) -> None:
        resources = self.get_resources(key)
        requests, limits = {**resources.requests, **amounts}, {**resources.limits, **amounts}
        for name in [name for name, amount in amounts.items() if amount is None]:
            del requests[name], limits[name]
        changed = msgspec.structs.replace(resources, requests_or_none=requests, limits_or_none=limits)
        self.set_field("resources", changed, key)

    def _get_fields(self, key: ContainerKey | None) -> dict[str, Any]:
        """Return the changed fields of spec, or of a container."""
        return self._spec if key is None else self._containers.setdefault(key, {})
