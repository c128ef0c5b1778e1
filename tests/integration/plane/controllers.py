"""Installs job controllers and Kueue on the plane by their manifests, and starts each for the first test that needs it.

A controller runs as the service account of its Deployment, with the rights of its own roles. The Secret in which it
keeps its certificates is written into its folder, as a kubelet would. As there is no network of Services, each
webhook's Service is an ExternalName for loopback. Webhooks and certificate management are on, as shipped.
"""

import base64
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp
import yaml

from plane import api, components, conditions, jobs, kueue, operators, ports, processes, schedulers, waiting

_MANIFEST_END = "\n---\n"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# mpi-operator's and training-operator's CRDs of the same name hold different versions: a cluster has one of the two
_NOT_OURS = {"training-operator": ("mpijobs.kubeflow.org",)}
# Nothing serves an APIService here, and then no namespace can be deleted
_NOT_CREATED = ("Deployment", "APIService")
_SCHEMES = ("pytorchjob", "tfjob")
_CERTIFICATES = pathlib.Path("k8s-webhook-server") / "serving-certs"  # below TMPDIR
_BUSY = {"qps": 200, "burst": 400}  # a controller's own limits would make a test wait


@dataclasses.dataclass(frozen=True)
class Place:
    """Files of one controller, and its ports on loopback."""

    folder: pathlib.Path  # its TMPDIR
    health: int
    webhook: int


def _mpi_operator(place: Place) -> tuple[list[str], Mapping[str, str]]:
    flags = ["-alsologtostderr", "-lock-namespace=mpi-operator", "-kube-api-qps=200", "-kube-api-burst=400"]
    return flags, {operators.HEALTH_ADDRESS: f"{components.LOOPBACK}:{place.health}"}


def _training_operator(place: Place) -> tuple[list[str], Mapping[str, str]]:
    flags = [
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={components.LOOPBACK}:{place.health}",
        f"--webhook-server-port={place.webhook}",
        *(f"--enable-scheme={scheme}" for scheme in _SCHEMES),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
    return flags, {}


def _configure_by_file(
    group: str, version: str = "v1alpha1", **more: Any
) -> Callable[[Place], tuple[list[str], Mapping[str, str]]]:
    """Return a function that writes the configuration of JobSet, LeaderWorkerSet or Kueue and returns its option."""

    def arguments(place: Place) -> tuple[list[str], Mapping[str, str]]:
        document = {
            "apiVersion": f"config.{group}/{version}",
            "kind": "Configuration",
            "webhook": {
                "host": components.LOOPBACK,
                "port": place.webhook,
                "certDir": str(place.folder / _CERTIFICATES),
            },
            "health": {"healthProbeBindAddress": f"{components.LOOPBACK}:{place.health}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": True},
            "clientConnection": _BUSY,
            **more,
        }
        path = place.folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(document))
        return [f"--config={path}"], {}

    return arguments


_ARGUMENTS: Mapping[str, Callable[[Place], tuple[list[str], Mapping[str, str]]]] = {
    "mpi-operator": _mpi_operator,
    "training-operator": _training_operator,
    "jobset": _configure_by_file("jobset.x-k8s.io"),
    "lws": _configure_by_file("lws.x-k8s.io"),
    "kueue": _configure_by_file("kueue.x-k8s.io", "v1beta2", **kueue.CONFIGURATION),
}


class Controllers:
    """Starts each controller once a run; they are ended with the plane, whose `processes` holds them."""

    def __init__(
        self,
        client: api.Api,
        parts: components.Components,
        running: dict[str, processes.Process],
        session: aiohttp.ClientSession,
        logs: pathlib.Path,
        *,
        enter: Sequence[str] = (),
    ) -> None:
        """Prefix each command line with `enter`, where the hosts file has the names of Services."""
        self._api, self._enter = client, enter
        self._parts = parts
        self._processes = running
        self._session = session
        self._logs = logs
        self.kinds: list[str] = []  # of the jobs that the started controllers carry out

    async def start(self, name: str) -> None:
        """Install and start a controller of `operators.OPERATORS`; return when the API server accepts its jobs."""
        if name in self._processes:
            return
        place = Place(self._parts.folder / name, health=ports.free(), webhook=ports.free())
        place.folder.mkdir()
        ready = operators.locate(name)
        documents = list(_read_documents(name, ready.manifests))
        for document in documents:
            if document["kind"] not in _NOT_CREATED:
                route = _route_by_url if self._enter else _route_to_loopback
                await self._api.create(route(document, place.webhook))
        definitions = _list_kind(documents, "CustomResourceDefinition")
        await conditions.wait_established(self._api, *(definition["metadata"]["name"] for definition in definitions))
        (deployment,) = _list_kind(documents, "Deployment")
        process = self._launch(name, ready.program, place, deployment)
        for secret in _list_kind(documents, "Secret"):
            await self._mount(secret["metadata"], place.folder / _CERTIFICATES, process)
        health = components.Health(f"http://{components.LOOPBACK}:{place.health}/healthz")
        await schedulers.wait_healthy(self._session, health, process)
        for job in [kind.build("specimen") for kind in jobs.KINDS.values() if kind.controller == name]:
            await self._wait_accepted(job, process)
            self.kinds.append(f"{job['apiVersion']}/{job['kind']}")
        if name == "kueue":
            await self._wait_accepted(kueue.build("ResourceFlavor", "specimen"), process)

    def _launch(self, name: str, program: pathlib.Path, place: Place, deployment: api.Object) -> processes.Process:
        namespace = deployment["metadata"]["namespace"]
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = self._parts.kubeconfig(
            name,
            f"system:serviceaccount:{namespace}:{account}",
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        flags, environment = _ARGUMENTS[name](place)
        process = processes.Process(name, [*self._enter, str(program), *flags], logs=self._logs)
        # KUBECONFIG in any case: with a developer's own, mpi-operator would run against the developer's cluster
        self._processes[name] = process.start(
            {
                "KUBECONFIG": kubeconfig,
                "TMPDIR": str(place.folder),
                "MY_POD_NAMESPACE": namespace,
                "KUBEFLOW_NAMESPACE": "",
                **environment,
            }
        )
        return process

    async def _mount(self, secret: api.Object, folder: pathlib.Path, process: processes.Process) -> None:
        """Write the Secret's keys to files as kubelet does, once the controller has stored its certificates."""

        async def read_certificate() -> Mapping[str, str]:
            process.assert_running()
            stored = await self._api.get("Secret", secret["name"], secret["namespace"])
            data: Mapping[str, str] = stored.get("data", {})
            return data

        data = await waiting.wait(read_certificate, describe=f"{process.name} to issue certificates\n{process.tail()}")
        _write(folder, data)

    async def _wait_accepted(self, job: api.Object, process: processes.Process) -> None:
        """Create a job by dry run until the API server reaches the controller's webhooks and they accept it."""

        async def is_called() -> bool:
            process.assert_running()
            await self._api.create(job, namespace="default", dry_run=True)
            return True

        await waiting.wait(
            is_called,
            seconds=120,  # Kueue issues its certificates first: half a minute on a busy machine
            describe=lambda: f"{process.name} to take a job; it says:\n{process.tail()}",
        )


def _write(folder: pathlib.Path, data: Mapping[str, str]) -> None:
    """Write the files at once, as kubelet does: a controller that finds an empty certificate ends."""
    unfinished = folder.with_name(f".{folder.name}")
    unfinished.mkdir(parents=True)
    for key, value in data.items():
        (unfinished / key).write_bytes(base64.b64decode(value))
    unfinished.rename(folder)


def _read_documents(name: str, path: pathlib.Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text().split(_MANIFEST_END):
        if not any(f"\n  name: {crd}\n" in text for crd in _NOT_OURS.get(name, ())):  # before parsing: 600 KB each
            yield yaml.load(text, Loader=yaml.CSafeLoader)


def _list_kind(documents: list[api.Object], kind: str) -> list[api.Object]:
    return [document for document in documents if document["kind"] == kind]


def _route_to_loopback(document: api.Object, port: int) -> api.Object:
    """Route a webhook's Service to loopback, because the plane has no network of Services."""
    if document["kind"] == "Service":
        outside = {"type": "ExternalName", "externalName": "localhost"}
        return {**document, "spec": outside}
    if document.get("spec", {}).get("conversion"):
        document["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
    if document["kind"] in _WEBHOOKS:
        for webhook in document["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
    return document


def _route_by_url(document: api.Object, port: int) -> api.Object:
    """Replace a webhook's Service by a URL with its name: an API server that routes to endpoints itself supports no
    ExternalName.
    """
    if document["kind"] in _WEBHOOKS:
        for webhook in document["webhooks"]:
            service = webhook["clientConfig"].pop("service")
            host = f"{service['name']}.{service['namespace']}.svc"
            webhook["clientConfig"]["url"] = f"https://{host}:{port}{service['path']}"
    return document
