"""`railwright certs issue`: certificates as files, as Secrets, or both; by hand, and without a wait.

Owns the order of steps and the words of the answer. Refuses to know how a certificate is built (certs/issue), which
may stay (certs/bundle) and how a cluster holds them (certs/installation).
"""

import argparse
import datetime as dt
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from certs import bundle, files, installation, inventory, issue
from railwright.cli import formats, kubeconfig, output
from railwright.cluster import client as clients

_FILES = (bundle.AUTHORITY, *inventory.SERVERS, "client")
_SECRETS = (bundle.AUTHORITY, *inventory.SERVERS)


async def issue_missing(arguments: argparse.Namespace) -> int:
    """Make what is missing or ending. Raises ClusterError, OSError and ValueError."""
    on_disk = _read_files(arguments.out) if arguments.out else {}
    if not arguments.secrets:
        held = _assemble(on_disk, arguments)
        _write_files(arguments.out, held)
        return _report(arguments, held, ())
    hosts = inventory.hosts("webhook", arguments.namespace, arguments.host)
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        looked = await installation.look(client, arguments.namespace, _SECRETS, hosts)
        held = _assemble(_merge(on_disk, looked.pairs, arguments.out), arguments)
        pem = await installation.write_pairs(client, looked, {name: each.pair for name, each in held.items()})
        trusts = await installation.fill(client, looked, pem)
    finally:
        await client.close()
    if arguments.out:
        _write_files(arguments.out, held)
    return _report(arguments, held, trusts)


def _merge(
    on_disk: Mapping[str, issue.Pair], in_cluster: Mapping[str, issue.Pair], folder: pathlib.Path | None
) -> dict[str, issue.Pair]:
    """Join both stores; the cluster's wins because its servers run on it. Two authorities are a question."""
    ours, theirs = on_disk.get(bundle.AUTHORITY), in_cluster.get(bundle.AUTHORITY)
    if ours is not None and theirs is not None and ours.certificate_pem != theirs.certificate_pem:
        secret = inventory.SECRETS[bundle.AUTHORITY]
        raise ValueError(
            f"{folder}/ca.crt and Secret {secret} are two different authorities; "
            "give an empty --out to keep the cluster's, or delete the Secret to replace it"
        )
    return {**on_disk, **in_cluster}


def _assemble(existing: Mapping[str, issue.Pair], arguments: argparse.Namespace) -> dict[str, bundle.Held]:
    wanted = inventory.wanted(arguments.namespace, more=arguments.host)
    if arguments.out:  # for callers outside the pods, from files; no Secret holds it
        wanted.append(bundle.Wanted("client", "railwright-client", issue.Usage.CLIENT))
    return bundle.assemble(
        existing,
        wanted,
        now=dt.datetime.now(dt.UTC),
        authority_lifetime=dt.timedelta(days=arguments.authority_days),
        leaf_lifetime=dt.timedelta(days=arguments.days),
    )


def _read_files(folder: pathlib.Path) -> dict[str, issue.Pair]:
    read = {name: files.read(folder, name) for name in _FILES}
    return {name: pair for name, pair in read.items() if pair is not None}


def _write_files(folder: pathlib.Path, held: Mapping[str, bundle.Held]) -> None:
    for name, each in held.items():
        if files.read(folder, name) != each.pair:
            files.write(folder, name, each.pair)


def _report(
    arguments: argparse.Namespace, held: Mapping[str, bundle.Held], trusts: Sequence[installation.Trust]
) -> int:
    """Print what was done; 1 where a webhook configuration is missing, because nothing calls us then."""
    missing = [each.kind for each in trusts if not each.found]
    if arguments.output == "json":
        formats.print_json(_document(arguments, held, trusts))
    else:
        for name, each in held.items():
            print(f"{name:9} {'kept' if each.reused else 'issued':7} until {each.not_after:%Y-%m-%d}")
        for one in trusts:
            print(f"{one.kind} {installation.CONFIGURATION}: {_words(one)}")
    for kind in missing:
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run this again",
            file=sys.stderr,
        )
    return output.FINDINGS if missing else output.OK


def _document(
    arguments: argparse.Namespace, held: Mapping[str, bundle.Held], trusts: Sequence[installation.Trust]
) -> dict[str, Any]:
    return {
        "out": str(arguments.out) if arguments.out else None,
        "namespace": arguments.namespace if arguments.secrets else None,
        "certificates": [
            {
                "name": name,
                "state": "kept" if each.reused else "issued",
                "notAfter": each.not_after.isoformat(),
                "secret": inventory.SECRETS.get(name) if arguments.secrets else None,
            }
            for name, each in held.items()
        ],
        "configurations": [
            {"kind": each.kind, "found": each.found, "filled": each.filled, "foreign": each.foreign} for each in trusts
        ],
    }


def _words(trust: installation.Trust) -> str:
    if not trust.found:
        return "missing"
    return f"caBundle filled for {', '.join(trust.filled)}" if trust.filled else "caBundle up to date"
