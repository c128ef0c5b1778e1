"""Runs `railwright policy validate`, `schema` and `scheduler-config`."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli import cluster_access, formats, object_files, options, output, policy_sources
from railwright.cli import scheduler_configuration as configuration
from railwright.cluster import client as clients
from railwright.cluster import installed_names, policies, resources, watch_wire
from railwright.fabric import intent, names, text
from railwright.fabric.lint import policy_values
from railwright.fabric.policy import model, schema, shortcomings
from railwright.fabric.workloads import frameworks


def print_schema(_: argparse.Namespace) -> int:
    """Print the schema and return 0."""
    formats.print_json(schema.build())
    return output.OK


def validate(arguments: argparse.Namespace) -> int:
    """Return 0 for valid policies, 1 if one is invalid. Raise UnreadableError for an unreadable file."""
    results = {file: policies.read_manifest(output.read_text(file)) for file in options.find_files(arguments)}
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(*row) for row in results.items()], arguments.output)
    else:
        for row in results.items():
            _print_result(*row)
    return output.FINDINGS if any(isinstance(result, policies.Rejected) for result in results.values()) else output.OK


def _list_warnings(policy: model.Policy) -> Sequence[str]:
    return [warning.line for warning in policy_values.list_warnings(policy.document)]


def _build_document(file: str, result: model.Policy | policies.Rejected) -> Mapping[str, object]:
    if isinstance(result, policies.Rejected):
        errors = [{"line": error.line, "path": error.path, "message": error.message} for error in result.errors]
        return {"file": file, "valid": False, "digest": None, "fabrics": [], "errors": errors, "warnings": []}
    return {
        "file": file,
        "valid": True,
        "digest": result.digest,
        "fabrics": list(result.document.fabrics),
        "errors": [],
        "warnings": _list_warnings(result),
    }


def _print_result(file: str, result: model.Policy | policies.Rejected) -> None:
    if not isinstance(result, policies.Rejected):
        fabrics = ", ".join(result.document.fabrics)
        output.print_styled((f"{file}: valid", "bold green"), (f" (fabrics: {fabrics}; {result.digest})", ""))
        for warning in _list_warnings(result):
            output.print_styled((file, "bold"), (": ", ""), ("warning", "yellow"), (f": {warning}", ""))
        return
    for error in result.errors:
        place = file if error.line is None else f"{file}:{error.line}"
        path = [(": ", ""), (error.path, "cyan")] if error.path else []
        output.print_styled((place, "bold"), *path, (": ", ""), (error.message, ""))
    count = text.format_count(len(result.errors), "error")
    output.print_styled((f"{count}: this policy would be rejected", "bold red"))


# --- the configuration of schedulers ------------------------------------------------------------------------

_WITHOUT_CLUSTER = (
    "the address is a DNS name and the CA a file, but kube-scheduler of kubeadm resolves no Service and mounts no such "
    "file; without --policy, the address and the CA of the cluster are printed"
)


def print_scheduler_configuration(arguments: argparse.Namespace) -> int:
    """Print the configuration and return 0. Raise UnreadableError or ClusterError.

    Read from a cluster, it has the address of the extender's Service and the CA, because kube-scheduler often runs on
    the host network: kubeadm's static pod uses the host's resolver, which does not know the names of Services.
    """
    if arguments.policy:
        document, extender = object_files.read_policy(arguments.policy).document, configuration.Extender()
    else:
        document, extender = cluster_access.run(arguments, _read_extender, "read the policy from a file: --policy FILE")
    managed, is_volcano = configuration.list_resources(document), arguments.scheduler == "volcano"
    written = (
        configuration.format_volcano(managed) if is_volcano else configuration.format_kube_scheduler(managed, extender)
    )
    print(written, end="")
    if arguments.policy and not is_volcano:
        output.print_note(_WITHOUT_CLUSTER)
    if arguments.policy and (unnamed := _list_unnamed(document)):
        output.print_note(
            f"resources are missing that only the networks of {text.join_first(unnamed, 5)} name: state `resource` "
            "there, or leave out --policy to read the networks from the cluster"
        )
    return output.OK


def _list_unnamed(document: model.PolicyDocument) -> Sequence[str]:
    """Return the rails whose resource comes from their network's annotation."""
    return [
        f"fabrics.{name}.rails {rail.name}"
        for name, fabric in document.fabrics.items()
        if fabric.claims is None and fabric.transport not in shortcomings.TRANSPORTS_WITHOUT_RESOURCE
        for rail in fabric.rails
        if rail.network and not rail.resource
    ]


async def _read_extender(client: clients.Client) -> tuple[model.PolicyDocument, configuration.Extender]:
    """Return the policy, with the resources that its networks name, and the extender."""
    namespace, name = installed_names.NAMESPACE, configuration.SERVICE
    webhooks = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{installed_names.INSTALLATION}"
    policy, service, installed = await asyncio.gather(
        policy_sources.fetch(client),
        watch_wire.find_object(client, f"/api/v1/namespaces/{namespace}/services/{name}", dict[str, Any]),
        watch_wire.find_object(client, webhooks, dict[str, Any]),
    )
    if service is None:
        raise output.UnreadableError(
            f"there is no Service {name} in namespace {namespace}: the extender is not installed; "
            "install it with the chart value extender.enabled=true, or give --policy FILE"
        )
    bundles = (
        frameworks.get_mapping(hook, "clientConfig").get("caBundle")
        for hook in frameworks.get_list(installed, "webhooks")
    )
    address = frameworks.get_mapping(service, "spec").get("clusterIP")
    host = configuration.SERVER_NAME if address in (None, "", "None") else str(address)  # None: a headless Service
    document = await _fill_resources(client, policy.document)
    return document, configuration.Extender(host, str(next(filter(None, bundles), "")))


async def _fill_resources(client: clients.Client, document: model.PolicyDocument) -> model.PolicyDocument:
    unnamed = _list_unnamed(document)
    listed = await cluster_access.list_allowed(client, resources.NADS.path, resources.NADS.view) if unnamed else []
    if listed is None:
        output.print_note(
            f"resources are missing that only the networks of {text.join_first(unnamed, 5)} name: "
            "state `resource` there, or get the right to list network-attachment-definitions"
        )
        return document
    networks = {item.metadata.key: item.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None for item in listed}
    fabrics = {
        name: fabric if fabric.claims else intent.fill_resources(name, fabric, networks)
        for name, fabric in document.fabrics.items()
    }
    return msgspec.structs.replace(document, fabrics=fabrics)
