"""Runs `railwright policy validate` and `railwright policy schema`."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from railwright.cli import cluster_access, formats, options, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, resources, watch_wire
from railwright.fabric import text
from railwright.fabric.lint import engine
from railwright.fabric.policy import model, schema, shortcomings
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import fabric_users


def print_schema(_: argparse.Namespace) -> int:
    """Print the JSON Schema of the policy and return 0."""
    formats.print_document(schema.build_schema(), output.JSON)
    return output.OK


def validate_policies(arguments: argparse.Namespace) -> int:
    """Print the errors and warnings of policies. Return 1 if one is invalid, otherwise 0. Raise UnreadableError.

    With --from-cluster, also print the webhook's warnings, and raise ClusterError if the cluster cannot be read.
    """
    if options.selects_cluster(arguments) and not arguments.from_cluster:
        raise output.UnreadableError("the options for the cluster need --from-cluster; add it, or remove them")
    results = [(file, policies.read_manifest(output.read_text(file))) for file in options.find_files(arguments)]
    documents = {file: result.document for file, result in results if isinstance(result, model.Policy)}
    warnings = {
        file: [warning.line for warning in engine.list_policy_warnings(document)]
        for file, document in documents.items()
    }
    if arguments.from_cluster and documents:
        compared = cluster_access.run_with_client(
            arguments, lambda client: _compare_with_cluster(client, list(documents.values()))
        )
        for file, lines in zip(documents, compared, strict=True):
            warnings[file] = [*lines, *warnings[file]]
    rows = [(file, result, warnings.get(file, [])) for file, result in results]
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(*row) for row in rows], arguments.output)
    else:
        for row in rows:
            _print_result(*row)
    is_rejected = any(isinstance(result, policies.RejectedPolicy) for _, result in results)
    return output.FINDINGS if is_rejected else output.OK


_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


async def _has_denying_bindings(client: clients.Client) -> bool:
    """True if a ValidatingAdmissionPolicy of railwright is bound with Deny; False also without the right to read it."""
    try:
        bindings = await watch_wire.list_objects(client, _BINDINGS, Any)
    except errors.ApiError:
        return False
    own = f"{installed_names.INSTALLATION}-"
    specs = [binding["spec"] for binding in bindings]
    return any(spec["policyName"].startswith(own) and "Deny" in spec["validationActions"] for spec in specs)


_DENIED_IN_WARN = reason.Reason(
    AdmissionCode.NOT_INJECTED,
    "mode: the ValidatingAdmissionPolicies of railwright are bound with Deny, and mode warn adds no injection record, "
    "so they reject opted-in pods",
    fix="bind them with Warn first (chart value admissionPolicy.mode=Warn)",
)


async def _compare_with_cluster(client: clients.Client, documents: Sequence[model.PolicyDocument]) -> list[list[str]]:
    """Return the warnings about each policy.

    They name the objects that the cluster lacks, the fabrics in use that the policy removes, and a mode warn in which
    opted-in pods would be rejected.
    """
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
    is_denied = await _has_denying_bindings(client)
    compared = []
    for document in documents:
        found = [_DENIED_IN_WARN] if is_denied and not document.is_enforced else []
        found += shortcomings.find_shortcomings(document, cluster)
        lost = fabric_users.list_removed_labels(current.document, document) if isinstance(current, model.Policy) else ()
        if lost:
            users = fabric_users.Users(
                await policy_validation.list_labelled_pods(client, lost), known.namespaces.by_key or {}
            )
            found += fabric_users.explain_uses(lost, users)
        compared.append([warning.line for warning in found])
    return compared


def _build_document(
    file: str, result: model.Policy | policies.RejectedPolicy, warnings: Sequence[str]
) -> Mapping[str, object]:
    if isinstance(result, policies.RejectedPolicy):
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


def _print_result(file: str, result: model.Policy | policies.RejectedPolicy, warnings: Sequence[str]) -> None:
    if not isinstance(result, policies.RejectedPolicy):
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
