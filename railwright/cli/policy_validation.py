"""Runs `railwright policy validate` and `railwright policy schema`: prints all errors of policies, or the schema."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from railwright.cli import cluster_access, formats, options, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, labelled_pods, resources, watch_wire
from railwright.cluster import policies as policy_reader
from railwright.fabric import text
from railwright.fabric.lint import policy_values
from railwright.fabric.policy import model, schema, shortcomings
from railwright.fabric.workloads import fabric_users

_FORBIDDEN = 403


def print_schema(_: argparse.Namespace) -> int:
    """Print the schema and return 0."""
    formats.print_json(schema.build())
    return output.OK


def validate(arguments: argparse.Namespace) -> int:
    """Return 0 for valid policies, 1 if one is invalid. Raise UnreadableError for an unreadable file.

    With `--from-cluster`, the warnings are also those that the webhook gives when the policy is stored; then raise
    ClusterError too.
    """
    cluster = options.get_cluster(arguments)
    if cluster.is_given and not arguments.from_cluster:
        raise output.UnreadableError("the options for the cluster need --from-cluster; add it, or remove them")
    results = [(file, policy_reader.read_manifest(output.read_text(file))) for file in options.find_files(arguments)]
    policies = [result for _, result in results if not isinstance(result, policy_reader.Rejected)]
    documents = [policy.document for policy in policies]
    warnings = [[warning.line for warning in policy_values.list_warnings(document)] for document in documents]
    if arguments.from_cluster and documents:
        compared = cluster_access.run(cluster, lambda client: _compare(client, documents))
        warnings = [[*seen, *others] for seen, others in zip(compared, warnings, strict=True)]
    of_valid = iter(warnings)
    rows = [
        (file, result, [] if isinstance(result, policy_reader.Rejected) else next(of_valid)) for file, result in results
    ]
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(*row) for row in rows], arguments.output)
    else:
        for row in rows:
            _print_result(*row)
    is_rejected = any(isinstance(result, policy_reader.Rejected) for _, result in results)
    return output.FINDINGS if is_rejected else output.OK


async def _compare(client: clients.Client, documents: Sequence[model.PolicyDocument]) -> list[list[str]]:
    """Return what each policy would lack in the cluster, and which fabrics in use it would remove."""
    from webhook import state

    known = state.State()
    sinks = ((resources.NODES, known.nodes), (resources.NADS, known.networks), (resources.NADS, known.subnets))
    for kind, sink in (*sinks, (resources.NAMESPACES, known.namespaces)):
        sink.replace(await _list_kind(client, kind))
    cluster = shortcomings.Cluster(
        known.networks.by_key, known.subnets.by_key, known.nodes.offered, known.nodes.devices
    )
    current = await policy_sources.find(client)
    compared = []
    may_read_templates = await _may_read_templates(client) if any(d.needs_claim_templates for d in documents) else True
    for document in documents:
        found = list(shortcomings.find(document, cluster))
        lost = fabric_users.list_lost(current.document, document) if isinstance(current, model.Policy) else ()
        if lost:
            users = fabric_users.Users(await labelled_pods.list_pods(client, lost), known.namespaces.by_key or {})
            found += fabric_users.describe(lost, users)
        if not may_read_templates:
            found += shortcomings.find_missing_rights(document)
        compared.append([reason.line for reason in found])
    return compared


async def _may_read_templates(client: clients.Client) -> bool:
    """Return False if the webhook may not read claim templates. True if the caller may not ask: the webhook warns."""
    permission = errors.Permission("list", resources.CLAIM_TEMPLATES.group, "resourceclaimtemplates")
    try:
        allowed = await cluster_access.review_access(
            client, permission, installed_names.NAMESPACE, f"{installed_names.INSTALLATION}-webhook"
        )
    except errors.ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return True
    return allowed is not False


async def _list_kind(client: clients.Client, kind: resources.Kind) -> list[Any]:
    try:
        return await watch_wire.list_objects(client, kind.path, kind.view)
    except errors.ApiError as error:
        if error.status == 404 and kind.optional:
            return []
        raise


def _build_document(
    file: str, result: model.Policy | policy_reader.Rejected, warnings: Sequence[str]
) -> Mapping[str, object]:
    if isinstance(result, policy_reader.Rejected):
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


def _print_result(file: str, result: model.Policy | policy_reader.Rejected, warnings: Sequence[str]) -> None:
    if not isinstance(result, policy_reader.Rejected):
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
