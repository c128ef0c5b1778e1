"""Finds the installations of a cluster by the labels of their Deployments, and selects one for this process.

The names of an installation are constants of the process, which `railwright.cluster.installed_names` reads from the
environment when it is imported. So this module imports nothing that imports them, and runs before what does.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple
from urllib import parse

import msgspec

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire

_VARIABLES = ("RAILWRIGHT_NAMESPACE", "RAILWRIGHT_INSTALLATION")
_DEPLOYMENTS = {"labelSelector": "app.kubernetes.io/part-of=railwright,app.kubernetes.io/component"}
_COMPONENT = "app.kubernetes.io/component"


class Installation(NamedTuple):
    """An installation: `name` is the first part of the names of its objects."""

    namespace: str
    name: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Deployment(msgspec.Struct):
    metadata: _Metadata


async def select_installation(client: clients.Client, namespace: str) -> str:
    """Let this process use the installation of the cluster, and return its namespace.

    `namespace` limits the choice, "" for all namespaces. RAILWRIGHT_NAMESPACE and RAILWRIGHT_INSTALLATION take
    precedence. Without any installation, or if the caller may not list Deployments, the default names stay. Raises
    UnreachableError, and UnreadableError if there are several installations.
    """
    if any(map(os.environ.get, _VARIABLES)):
        return namespace
    installations = await _find_installations(client, namespace)
    if len(installations) > 1:
        raise output.UnreadableError(_describe_choice(installations, namespace))
    for installation in installations:
        os.environ.update(zip(_VARIABLES, installation, strict=True))
        return installation.namespace
    return namespace


async def _find_installations(client: clients.Client, namespace: str) -> Sequence[Installation]:
    """Return the installations of a namespace, or of all namespaces, sorted; () if they cannot be listed."""
    scope = f"namespaces/{parse.quote(namespace, safe='')}/" if namespace else ""
    try:
        deployments = await watch_wire.list_objects(
            client, f"/apis/apps/v1/{scope}deployments", _Deployment, _DEPLOYMENTS
        )
    except (errors.ApiError, errors.ForeignError, *watch_wire.UNREADABLE):
        return ()  # the checks say what is wrong
    return sorted(
        {
            Installation(metadata.namespace, metadata.name.removesuffix(suffix))
            for metadata in (deployment.metadata for deployment in deployments)
            if metadata.name.endswith(suffix := f"-{metadata.labels.get(_COMPONENT)}")
        }
    )


def _describe_choice(installations: Sequence[Installation], namespace: str) -> str:
    names = ", ".join(f"{name} in namespace {place}" for place, name in installations)
    first = installations[0]
    if len({place for place, _ in installations}) == len(installations):
        fix = f"choose one by its namespace: railwright check -n {first.namespace}"
    else:
        fix = f"choose one: export RAILWRIGHT_NAMESPACE={first.namespace} RAILWRIGHT_INSTALLATION={first.name}"
    where = f"namespace {namespace}" if namespace else "the cluster"
    return f"{where} has {len(installations)} installations of railwright: {names}; {fix}"
