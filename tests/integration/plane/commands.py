"""Runs commands as a user does: railwright of this repository, kubectl, and commands of a documentation page."""

import json
import os
import pathlib
import sys
import uuid
from typing import Any

from plane import manifests, plane, processes, servers, waiting

RAILWRIGHT = (sys.executable, "-m", "railwright.cli")


async def railwright(
    *words: str,
    kubeconfig: pathlib.Path | str = "",
    folder: pathlib.Path = servers.ROOT,
    stdin: str = "",
    program: tuple[str, ...] = RAILWRIGHT,
    **environment: str,
) -> processes.Result:
    """Run `railwright WORDS` in a folder."""
    values = {"PYTHONPATH": str(servers.ROOT), **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}), **environment}
    return await processes.run(*program, *words, cwd=folder, env={**os.environ, **values}, stdin=stdin)


async def check(on: plane.Plane, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run `railwright check`; return its exit code and its rows by name."""
    code, out, err = await railwright("check", "-o", "json", *options, kubeconfig=on.kubeconfig, **environment)
    assert out, err
    return code, {row["check"]: row for row in json.loads(out)["checks"]}


async def make_reader(on: plane.Plane, namespace: str) -> str:
    """Allow the namespace's default account to get its pods, and return a token of the account."""
    token = await make_token(on, namespace)
    subject = f"--serviceaccount={namespace}:default"
    await on.kubectl("create", "rolebinding", "reader", "--clusterrole=view", subject, "-n", namespace, check=False)
    return token


async def make_token(on: plane.Plane, namespace: str) -> str:
    """Return a token of the namespace's default account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = (await on.api.request("POST", path, body=body))["status"]["token"]
    return token


async def request_explanation(
    on: plane.Plane, extender: servers.Server, namespace: str, name: str, token: str = ""
) -> tuple[int, dict[str, Any]]:
    """Request the explanation of a pod, with a token if there is one. Return the HTTP status and the answer."""
    url = f"http://127.0.0.1:{extender.port}/explain/{namespace}/{name}"
    async with on.session.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}) as answer:
        return answer.status, json.loads(await answer.read())


async def explain(on: plane.Plane, extender: servers.Server, namespace: str, name: str) -> dict[str, Any]:
    """Return the explanation of a pod, once the extender has a decision on it."""
    token = await make_reader(on, namespace)

    async def read() -> dict[str, Any]:
        status, explanation = await request_explanation(on, extender, namespace, name, token)
        assert status == 200, explanation
        return explanation

    return await waiting.wait(read, describe=f"an explanation of {name}")


class Person:
    """A user without permissions at first, who runs railwright's commands in a folder."""

    def __init__(self, on: plane.Plane, folder: pathlib.Path) -> None:
        self.user = f"person-{uuid.uuid4().hex[:8]}"
        self.kubeconfig = on.certificates.kubeconfig(self.user, on.parts.server, self.user)
        self._plane, self._folder = on, folder

    async def __call__(self, *words: str, stdin: str = "") -> processes.Result:
        """Run `railwright WORDS`."""
        home = {"folder": self._folder, "HOME": str(self._folder)}
        return await railwright(*words, kubeconfig=self.kubeconfig, stdin=stdin, **home)

    async def may(self, verb: str, resource: str, namespace: str = "", *, subresource: str = "") -> bool:
        """Return True if the user has a right to a resource, named as for `kubectl auth can-i`."""
        kind, _, name = resource.partition("/")
        kind, _, group = kind.partition(".")
        asked = {"verb": verb, "group": group, "resource": kind, "subresource": subresource, "name": name}
        spec = {"user": self.user, "groups": ["system:authenticated"]}
        spec |= {"resourceAttributes": asked | {"namespace": namespace}}
        review = manifests.build("SubjectAccessReview", "", spec=spec)
        return bool((await self._plane.api.create(review))["status"]["allowed"])

    async def wait_permitted(self, verb: str, resource: str, namespace: str = "", *, subresource: str = "") -> None:
        """Wait until the API server grants a right to the user."""

        async def is_permitted() -> bool:
            return await self.may(verb, resource, namespace, subresource=subresource)

        await waiting.wait(is_permitted, describe=f"the right of {self.user} to {verb} {resource}")

    async def allow(
        self,
        role: str,
        namespace: str,
        verb: str = "get",
        resource: str = "pods",
        *,
        subresource: str = "",
        kind: str = "ClusterRole",
    ) -> None:
        """Bind a role in a namespace, and wait until this right of it is granted."""
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        binding = manifests.build("RoleBinding", self.user, roleRef=reference, subjects=[user])
        await self._plane.api.create(binding, namespace=namespace)
        await self.wait_permitted(verb, resource, namespace, subresource=subresource)


class Shell:
    """A shell with `railwright` and `kubectl` on its PATH, for one user of the plane, in a folder of its own."""

    def __init__(self, on: plane.Plane, folder: pathlib.Path, kubeconfig: pathlib.Path | str) -> None:
        programs, self.folder = folder / "bin", folder / "home"
        programs.mkdir()
        self.folder.mkdir()
        for name, words in (("railwright", " ".join(RAILWRIGHT)), ("kubectl", on.kubectl_program)):
            (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (programs / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(servers.ROOT),
            "HOME": str(folder),
        }

    async def __call__(self, command: str) -> processes.Result:
        """Run a command line."""
        return await processes.run("sh", "-c", command, cwd=self.folder, env=self._environment)
