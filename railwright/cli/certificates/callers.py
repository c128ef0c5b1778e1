"""`railwright certs admission-config`: the files with which callers present their certificates.

Owns which file is called what, on the machines of the control plane. Their contents are `certs.admission`'s.
"""

import argparse
import pathlib

from certs import admission, files, installation, inventory, trust
from railwright.cli import output
from railwright.cli.certificates import connection


async def write(arguments: argparse.Namespace) -> int:
    """Write the files that have changed into --out. Raises ValueError where the cluster has no such certificates."""
    client = await connection.connect(arguments.kubeconfig)
    try:
        looked = await installation.look(client, arguments.namespace, (inventory.AUTHORITY, *inventory.CALLERS), ())
    finally:
        await client.close()
    pairs = {name: pair for name, pair in looked.pairs.items() if name in inventory.CALLERS}
    if missing := [inventory.SECRETS[name] for name in inventory.CALLERS if name not in pairs]:
        raise ValueError(
            f"no certificate in Secret {' and '.join(missing)} of namespace {arguments.namespace}; "
            "let the rotator make them: railwright certs rotate --callers"
        )
    out: pathlib.Path = arguments.out
    changed = [name for name, pair in pairs.items() if files.read(out, name) != pair]
    for name in changed:
        files.write(out, name, pairs[name])
    directory = pathlib.PurePosixPath(arguments.directory)
    users = [admission.user(arguments.namespace), *arguments.user]
    texts = {
        "ca.crt": trust.joined(looked.seen.keyring.trusted).decode(),
        admission.ADMISSION: admission.configuration(directory),
        admission.KUBECONFIG: admission.kubeconfig(users, directory / "apiserver.crt", directory / "apiserver.key"),
    }
    for name, text in texts.items():
        path = out / name
        if not path.exists() or path.read_text() != text:
            files.replace(path, text.encode(), files.CERTIFICATE_MODE)
            changed.append(name)
    if arguments.output == "json":
        output.print_json({"out": str(out), "changed": changed, "users": users})
    else:
        print(f"{out}: {', '.join(changed) if changed else 'nothing'} changed")
    return output.OK
