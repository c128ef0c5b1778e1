"""Another mutating webhook, called before or after ours, which changes pods by their annotations.

The changes are in `tests/support/peers`; here are the server and its registration.
"""

import base64
import copy
import json
import socket
from collections.abc import Callable, Mapping

import jsonpatch
from aiohttp import web

from plane import api, credentials

BEFORE, AFTER = "peer.test/before", "peer.test/after"  # annotations: actions, separated by commas
_CONFIGURATIONS = {"a-peer": BEFORE, "z-peer": AFTER}  # our own is between them by its name
Actions = Mapping[str, Callable[[api.Object], api.Object]]


class Peer:
    """A server on loopback, registered for some namespaces until it is stopped."""

    def __init__(self, client: api.Api, certificates: credentials.Credentials, actions: Actions) -> None:
        self._client, self._certificates, self._actions = client, certificates, actions
        application = web.Application(client_max_size=8 * 2**20)
        application.router.add_post("/{when}", self._answer)
        self._runner = web.AppRunner(application)

    async def start(self, *namespaces: str, reinvocation: str = "Never") -> None:
        """Serve, and have the API server call for pods of these namespaces.

        `reinvocation` is the reinvocationPolicy; Network Resources Injector has `Never`.
        """
        await self._runner.setup()
        self._certificates.server("peer")
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, listener, ssl_context=self._certificates.serving("peer")).start()
        port = self._runner.addresses[0][1]
        for name in _CONFIGURATIONS:
            await self._client.create(self._document(name, port, namespaces, reinvocation))

    async def stop(self) -> None:
        """Unregister and end."""
        for name in _CONFIGURATIONS:
            await self._client.delete("MutatingWebhookConfiguration", name)
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        pod = review["request"]["object"]
        names = pod["metadata"].get("annotations", {}).get(_CONFIGURATIONS[request.match_info["when"]], "")
        after = copy.deepcopy(pod)
        for name in filter(None, names.split(",")):
            after = self._actions[name](after)
        operations = jsonpatch.make_patch(pod, after).patch
        response = {"uid": review["request"]["uid"], "allowed": True}
        if operations:
            patch = base64.b64encode(json.dumps(operations).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": patch}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    def _document(self, name: str, port: int, namespaces: tuple[str, ...], reinvocation: str) -> api.Object:
        authority = base64.b64encode(self._certificates.authority.certificate_pem).decode()
        scope = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        webhook = {
            "name": f"{name}.peer.test",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{name}", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchExpressions": [scope]},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "reinvocationPolicy": reinvocation,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [webhook],
        }
