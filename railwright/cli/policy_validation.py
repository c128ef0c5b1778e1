"""Runs three commands: `railwright policy validate`, `policy schema` and `policy scheduler-config`."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli import cluster_access, formats, object_files, options, output, policy_sources
from railwright.cli import scheduler_configuration as configuration
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, resources, watch_wire
from railwright.fabric import intent, names, text
from railwright.fabric.lint import policy_values
from railwright.fabric.policy import model, schema, shortcomings
from railwright.fabric.workloads import fabric_users, frameworks


def print_schema(_: argparse.Namespace) -> int:
    """Print the JSON Schema of the policy and return 0."""
    formats.print_document(schema.build_schema(), output.JSON)
    return output.OK


def validate(arguments: argparse.Namespace) -> int:
    """Print the errors and warnings of policies. Return 1 if one is invalid, otherwise 0. Raise UnreadableError.

    With --from-cluster, print the warnings that the webhook would give too. Then ClusterError may be raised.
    """
    if options.names_cluster(arguments) and not arguments.from_cluster:
        raise output.UnreadableError("the options for the cluster need --from-cluster; add it, or remove them")
    results = [(file, policies.read_manifest(output.read_text(file))) for file in options.find_files(arguments)]
    documents = {file: result.document for file, result in results if isinstance(result, model.Policy)}
    warnings = {
        file: [warning.line for warning in policy_values.list_warnings(document)]
        for file, document in documents.items()
    }
    if arguments.from_cluster and documents:
        compared = cluster_access.run(arguments, lambda client: _compare_with_cluster(client, list(documents.values())))
        for file, lines in zip(documents, compared, strict=True):
            warnings[file] = [*lines, *warnings[file]]
    rows = [(file, result, warnings.get(file, [])) for file, result in results]
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(*row) for row in rows], arguments.output)
    else:
        for row in rows:
            _print_result(*row)
    is_rejected = any(isinstance(result, policies.Rejected) for _, result in results)
    return output.FINDINGS if is_rejected else output.OK


async def _compare_with_cluster(client: clients.Client, documents: Sequence[model.PolicyDocument]) -> list[list[str]]:
    """Return the warnings about each policy: what the cluster lacks of it, and fabrics in use that it removes."""
    from webhook import policy_validation, state

    known, nodes = state.State(), list[Any]()
    sinks = ((resources.NODES, known.nodes), (resources.NADS, known.networks), (resources.NADS, known.configurations))
    for kind, sink in (*sinks, (resources.NAMESPACES, known.namespaces)):
        try:
            listed = await watch_wire.list_objects(client, kind.path, kind.view)
        except errors.ApiError as error:
            if error.status != 404 or not kind.optional:
                raise
            listed = []
        sink.replace(listed)
        nodes = listed if kind is resources.NODES else nodes
    cluster = known.cluster._replace(node_labels=[node.metadata.labels for node in nodes])
    current = await policy_sources.find_policy(client)
    compared = []
    for document in documents:
        found = list(shortcomings.find_shortcomings(document, cluster))
        lost = fabric_users.list_lost(current.document, document) if isinstance(current, model.Policy) else ()
        if lost:
            users = fabric_users.Users(
                await policy_validation.list_labelled_pods(client, lost), known.namespaces.by_key or {}
            )
            found += fabric_users.describe(lost, users)
        compared.append([reason.line for reason in found])
    return compared


def _build_document(
    file: str, result: model.Policy | policies.Rejected, warnings: Sequence[str]
) -> Mapping[str, object]:
    if isinstance(result, policies.Rejected):
        errors = [{"line": error.line, "path": error.path, "message": error.message} for error in result.errors]
        return {"file": file, "valid": False, "digest": None, "fabrics": [], "errors": errors, "warnings": []}
    return {
        "file": file,
        "valid": True,
        "digest": result.digest,
        "fabrics": list(result.document.fabrics),
        "errors": [],
        "warnings": warnings,
    }


def _print_result(file: str, result: model.Policy | policies.Rejected, warnings: Sequence[str]) -> None:
    if not isinstance(result, policies.Rejected):
        fabrics = ", ".join(result.document.fabrics)
        output.print_styled((f"{file}: valid", "bold green"), (f" (fabrics: {fabrics}; {result.digest})", ""))
        for warning in warnings:
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
    "the address above is a DNS name and the CA a file, but kubeadm's kube-scheduler resolves no Service names and "
    "mounts no such file; leave out --policy to print the IP address of the Service and the CA of the cluster"
)


def print_scheduler_configuration(arguments: argparse.Namespace) -> int:
    """Print the configuration of kube-scheduler or Volcano and return 0. Raise UnreadableError or ClusterError.

    Read from a cluster, it has the address of the extender's Service and the CA, because kube-scheduler often runs on
    the host network: kubeadm's static pod uses the host's resolver, which does not know the names of Services.
    """
    if arguments.policy:
        document, extender = object_files.read_policy(arguments.policy).document, configuration.ExtenderAddress()
    else:
        document, extender = cluster_access.run(arguments, _read_extender, "read the policy from a file: --policy FILE")
    managed, is_volcano = configuration.list_resources(document), arguments.scheduler == "volcano"
    written = (
        configuration.format_volcano(managed) if is_volcano else configuration.format_kube_scheduler(managed, extender)
    )
    print(written, end="")
    if arguments.policy and not is_volcano:
        output.print_note(_WITHOUT_CLUSTER)
    if arguments.policy and (unnamed := _list_rails_without_resource(document)):
        output.print_note(
            f"the resources of {text.join_first(unnamed, 5)} are missing, because only their networks name them; state "
            "`resource` of these rails, or leave out --policy to read the networks from the cluster"
        )
    return output.OK


def _list_rails_without_resource(document: model.PolicyDocument) -> Sequence[str]:
    """Return the rails for which the policy states no resource, so that an annotation of their network names it."""
    return [
        f"fabrics.{name}.rails {rail.name}"
        for name, fabric in document.fabrics.items()
        if fabric.claims is None and fabric.transport not in shortcomings.TRANSPORTS_WITHOUT_RESOURCE
        for rail in fabric.rails
        if rail.network and not rail.resource
    ]


async def _read_extender(client: clients.Client) -> tuple[model.PolicyDocument, configuration.ExtenderAddress]:
    """Return the policy in force, with the resources that networks name, and the extender's address."""
    namespace, name = installed_names.NAMESPACE, configuration.SERVICE
    webhooks = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{installed_names.INSTALLATION}"
    (policy, _), service, installed = await asyncio.gather(
        policy_sources.fetch_policy(client),
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
    return document, configuration.ExtenderAddress(host, str(next(filter(None, bundles), "")))


async def _fill_resources(client: clients.Client, document: model.PolicyDocument) -> model.PolicyDocument:
    unnamed = _list_rails_without_resource(document)
    listed = await cluster_access.list_if_allowed(client, resources.NADS.path, resources.NADS.view) if unnamed else []
    if listed is None:
        output.print_note(
            f"the resources of {text.join_first(unnamed, 5)} are missing, because only their networks name them; state "
            "`resource` of these rails, or get the right to list network-attachment-definitions"
        )
        return document
    networks = {item.metadata.key: item.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None for item in listed}
    fabrics = {
        name: fabric if fabric.claims else intent.fill_resources(name, fabric, networks)
        for name, fabric in document.fabrics.items()
    }
    return msgspec.structs.replace(document, fabrics=fabrics)
