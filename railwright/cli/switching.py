"""Runs `railwright disable` and `railwright enable`: deletes the webhooks and policy bindings, and restores them.

Disabling deletes the bindings of the admission policies first, because these reject labelled pods that were not
injected, then the webhooks. Enabling creates the webhooks first. In the meantime a ConfigMap holds the deleted objects.
"""

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli import cluster_access, output
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import text, views

Object = dict[str, Any]

_API = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS, _BINDINGS = "MutatingWebhookConfiguration", "ValidatingAdmissionPolicyBinding"
_PATHS = {kind: f"{_API}/{kind.lower()}s" for kind in (_WEBHOOKS, _BINDINGS)}  # in the order of enabling
# of manifests/base/admission-policy.yaml
_POLICIES = ("injected", "injected-by-namespace")
_OWN_METADATA = ("name", "labels", "annotations")  # what is restored; the API server sets the rest
_MISSING, _CONFLICT = 404, 409
_KEY = "objects.json"
_INSTALL = "`helm upgrade --reset-then-reuse-values` or `kubectl apply -k` of the installation"
_DISABLED = """\
Labelled pods are then created as they are written: without networks and NCCL settings they train over TCP, if at all.
- Running pods keep what they have.
- Jobs whose templates were changed before still request rails; their new pods get no networks and no NCCL settings.
- A Job that is created then, with the label only on the Job itself, does not pass the label to its pods. They are not
  injected after `enable` either: delete the Job and create it again.
- The servers, the extender and the validation of policies keep running. To place pods without the extender, change the
  configuration of the scheduler.
{undo} {install} would enable it too, even if nobody intends that: pause Argo CD or Flux until then."""
_ENABLED = """\
Pods that were created meanwhile do not change; create them again to give them their network. Also create again each Job
that was created meanwhile with the label only on the Job itself. Verify: railwright check"""


class Switch:
    """Deletes and restores the webhooks and bindings of an installation. A ConfigMap keeps the deleted objects."""

    def __init__(self, client: clients.Client, namespace: str, name: str, *, is_dry_run: bool) -> None:
        self._client = client
        self._name = name
        self._query = "?dryRun=All" if is_dry_run else ""
        self._would = "would have " if is_dry_run else ""
        self._copies = f"/api/v1/namespaces/{namespace}/configmaps"
        self.copy_name = f"{name}-disabled"
        self.copy = f"ConfigMap {namespace}/{self.copy_name}"

    async def disable(self) -> None:
        """Delete the webhooks and bindings, if there are any, and print each."""
        objects = [item for kind in reversed(_PATHS) for item in await self._read_objects(kind)]
        if not objects:
            print("disabled already: there is no webhook and no policy binding of railwright")
            return
        undo = "To undo: railwright enable."
        try:
            await self._save_copy(objects)
        except errors.ApiError as error:
            if error.status != _MISSING and "being terminated" not in error.message:
                raise
            undo = f"No copy was kept, because the namespace of {self.copy} does not exist or is being deleted."
        for item in objects:
            await self._delete(f"{_PATHS[item['kind']]}/{item['metadata']['name']}")
            self._print_change("deleted", _format_title(item))
        print(_DISABLED.format(undo=undo, install=_INSTALL))

    async def enable(self) -> None:
        """Create the webhooks and bindings that the ConfigMap keeps, and print each.

        Raises UnreadableError if there is neither a copy nor webhooks, or if only the bindings could be restored:
        without webhooks they reject each labelled pod.
        """
        saved = await self._read_copy()
        has_webhooks = bool(await self._read_objects(_WEBHOOKS))
        if not saved and has_webhooks:
            print(f"enabled already: the webhooks exist, and there is no {self.copy}")
            return
        if not saved:
            raise output.UnreadableError(
                f"there is nothing to restore, because {self.copy} does not exist; to enable railwright: {_INSTALL}"
            )
        if not has_webhooks and all(item["kind"] != _WEBHOOKS for item in saved):
            raise output.UnreadableError(
                f"{self.copy} has no {_WEBHOOKS} {self._name}, because it was deleted before `railwright disable`; the "
                f"bindings alone would reject every labelled pod. Create it by {_INSTALL}; `railwright certs rotate` "
                "gives it the CA at once; then: railwright enable"
            )
        for item in sorted(saved, key=lambda item: list(_PATHS).index(item["kind"])):
            try:
                await self._client.post(f"{_PATHS[item['kind']]}{self._query}", item)
            except errors.ApiError as error:
                if error.status != _CONFLICT:
                    raise
                output.print_change(f"{_format_title(item)} exists already, so it was not changed")
            else:
                self._print_change("created", _format_title(item))
        await self._delete(f"{self._copies}/{self.copy_name}")
        self._print_change("deleted", self.copy)
        print(_ENABLED)

    def _print_change(self, verb: str, what: str) -> None:
        output.print_change(f"{self._would}{verb} {what}")

    async def _read_objects(self, kind: str) -> list[Object]:
        """Return the webhooks or the policy bindings of the installation, by `kind`."""
        body = json.loads(await self._client.get(_PATHS[kind]))
        policies = {f"{self._name}-{policy}" for policy in _POLICIES}
        return [
            {"apiVersion": "admissionregistration.k8s.io/v1", **item, "kind": kind}
            for item in body.get("items") or ()
            if (item["metadata"]["name"] == self._name if kind == _WEBHOOKS else item["spec"]["policyName"] in policies)
        ]

    async def _save_copy(self, objects: Sequence[Object]) -> None:
        """Write the ConfigMap. It keeps the objects that an interrupted `disable` has stored before."""
        saved = await self._read_copy()
        stripped = [
            {**item, "metadata": {key: item["metadata"][key] for key in _OWN_METADATA if key in item["metadata"]}}
            for item in objects
        ]
        restored = {_format_title(item): item for item in (*(saved or ()), *stripped)}
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.copy_name, "labels": {"app.kubernetes.io/part-of": "railwright"}},
            "data": {_KEY: json.dumps(list(restored.values()), indent=1)},
        }
        if saved is None:
            await self._client.post(f"{self._copies}{self._query}", document)
        else:
            await self._client.put(f"{self._copies}/{self.copy_name}{self._query}", document)
        self._print_change("written", f"{self.copy}: {text.format_count(len(restored), 'object')} to restore")

    async def _read_copy(self) -> list[Object] | None:
        """Return the objects in the ConfigMap; None if it does not exist. Raise UnreadableError for an edited one."""
        config_map = await watch_wire.find_object(self._client, f"{self._copies}/{self.copy_name}", views.ConfigMap)
        if config_map is None:
            return None
        try:
            items = msgspec.json.decode((config_map.data or {})[_KEY], type=list[Object])
            return [item for item in items if item["kind"] in _PATHS and item["metadata"]["name"]]
        except (KeyError, TypeError, ValueError) as error:
            raise output.UnreadableError(
                f"{self.copy}: key {_KEY} is not a list of objects ({error}); delete the ConfigMap and use {_INSTALL}"
            ) from None

    async def _delete(self, path: str) -> None:
        """Delete an object. A missing object is not an error."""
        # in the body: the API server ignores the query of a DELETE that has a body
        options = {"dryRun": ["All"]} if self._query else {}
        try:
            await self._client.delete(path, options)
        except errors.ApiError as error:
            if error.status != _MISSING:
                raise


def disable_webhooks(arguments: argparse.Namespace) -> int:
    """Delete the webhooks and bindings. Return 0, also if there are none. Raise ClusterError or UnreadableError."""
    return _switch_installation(arguments, Switch.disable)


def enable_webhooks(arguments: argparse.Namespace) -> int:
    """Restore the webhooks and bindings. Return 0, also if none are missing. Raise ClusterError or UnreadableError."""
    return _switch_installation(arguments, Switch.enable)


def _switch_installation(arguments: argparse.Namespace, act: Callable[[Switch], Awaitable[None]]) -> int:
    async def select_and_switch(client: clients.Client) -> None:
        namespace = await cluster_access.select_installation(client, arguments.namespace)
        from railwright.cluster import installed_names as names  # after the selection, which determines them

        await act(Switch(client, namespace or names.NAMESPACE, names.INSTALLATION, is_dry_run=arguments.dry_run))

    cluster_access.run_with_client(arguments, select_and_switch)
    return output.OK


def _format_title(item: Mapping[str, Any]) -> str:
    return output.escape_controls(f"{item['kind']} {item['metadata']['name']}")
