"""Runs `railwright certs issue`: writes missing and expiring certificates to files, Secrets or both."""

import argparse
import datetime as dt
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from certs import bundle, files, installation, inventory, issue
from railwright.cli import formats, kubeconfig, output
from railwright.cluster import client as clients

_SECRETS = (inventory.CA, *inventory.SERVERS)
_FILES = (*_SECRETS, "client")


async def issue_missing(arguments: argparse.Namespace) -> int:
    """Return 0 if done, 1 if a webhook configuration is missing. Raises ClusterError, OSError and ValueError."""
    on_disk = _read_files(arguments.out) if arguments.out else {}
    if not arguments.secrets:
        issued = _assemble(on_disk, arguments)
        _write_files(arguments.out, issued)
        return _report(arguments, issued, ())
    hosts = inventory.list_hosts("webhook", arguments.namespace, arguments.host)
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        state = await installation.read_state(client, arguments.namespace, _SECRETS, hosts)
        issued = _assemble(_merge(on_disk, state.pairs, arguments.out), arguments)
        pem = await installation.write_pairs(client, state, {name: item.pair for name, item in issued.items()})
        updates = await installation.fill_bundles(client, state, pem)
    finally:
        await client.close()
    if arguments.out:
        _write_files(arguments.out, issued)
    return _report(arguments, issued, updates)


def print_missing(kinds: Iterable[str]) -> None:
    """Print a line on stderr for each webhook configuration that does not exist: nothing calls the webhook then."""
    for kind in kinds:
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run this again",
            file=sys.stderr,
        )


def _merge(
    on_disk: Mapping[str, issue.Pair], in_cluster: Mapping[str, issue.Pair], folder: pathlib.Path | None
) -> dict[str, issue.Pair]:
    """Join both stores; the cluster's pairs win, because its servers use them. Raises ValueError for two CAs."""
    file_ca, cluster_ca = on_disk.get(inventory.CA), in_cluster.get(inventory.CA)
    if file_ca is not None and cluster_ca is not None and file_ca.certificate_pem != cluster_ca.certificate_pem:
        secret = inventory.SECRETS[inventory.CA]
        raise ValueError(
            f"{folder}/ca.crt and Secret {secret} are two different CAs; "
            "give an empty --out to keep the cluster's, or delete the Secret to replace it"
        )
    return {**on_disk, **in_cluster}


def _assemble(existing: Mapping[str, issue.Pair], arguments: argparse.Namespace) -> dict[str, bundle.IssuedPair]:
    specs = inventory.list_specs(arguments.namespace, more=arguments.host)
    if arguments.out:  # for clients outside the cluster, which read files; no Secret holds it
        specs.append(bundle.CertificateSpec("client", "railwright-client", issue.Usage.CLIENT))
    return bundle.assemble(
        existing,
        specs,
        now=dt.datetime.now(dt.UTC),
        ca_lifetime=dt.timedelta(days=arguments.ca_days),
        certificate_lifetime=dt.timedelta(days=arguments.days),
    )


def _read_files(folder: pathlib.Path) -> dict[str, issue.Pair]:
    pairs = {name: files.read(folder, name) for name in _FILES}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def _write_files(folder: pathlib.Path, issued: Mapping[str, bundle.IssuedPair]) -> None:
    for name, item in issued.items():
        if files.read(folder, name) != item.pair:
            files.write(folder, name, item.pair)


def _report(
    arguments: argparse.Namespace,
    issued: Mapping[str, bundle.IssuedPair],
    updates: Sequence[installation.BundleUpdate],
) -> int:
    missing = [update.kind for update in updates if not update.exists]
    if arguments.output == "json":
        formats.print_json(_build_document(arguments, issued, updates))
    else:
        for name, item in issued.items():
            print(f"{name:9} {'kept' if item.reused else 'issued':7} until {item.not_after:%Y-%m-%d}")
        for update in updates:
            print(f"{update.kind} {installation.CONFIGURATION}: {_describe(update)}")
    print_missing(missing)
    return output.FINDINGS if missing else output.OK


def _build_document(
    arguments: argparse.Namespace,
    issued: Mapping[str, bundle.IssuedPair],
    updates: Sequence[installation.BundleUpdate],
) -> dict[str, Any]:
    return {
        "out": str(arguments.out) if arguments.out else None,
        "namespace": arguments.namespace if arguments.secrets else None,
        "certificates": [
            {
                "name": name,
                "state": "kept" if item.reused else "issued",
                "notAfter": item.not_after.isoformat(),
                "secret": inventory.SECRETS.get(name) if arguments.secrets else None,
            }
            for name, item in issued.items()
        ],
        "configurations": [
            {"kind": update.kind, "exists": update.exists, "filled": update.filled, "foreign": update.foreign}
            for update in updates
        ],
    }


def _describe(update: installation.BundleUpdate) -> str:
    if not update.exists:
        return "missing"
    return f"caBundle filled for {', '.join(update.filled)}" if update.filled else "caBundle up to date"
