"""Runs `railwright policy export`: prints the objects with which the API server changes pods without our servers."""

import argparse
import sys

from railwright.cli import formats, options, output, policies
from railwright.fabric import text, version
from railwright.fabric.injection import admission_policies


def export(arguments: argparse.Namespace) -> int:
    """Print the objects, after comments on what they cannot do. Return 1 if that is something of this policy.

    Raises UnreadableError for an unreadable file or an invalid policy.
    """
    files = options.find_files(arguments)
    if len(files) > 1:
        raise output.UnreadableError(
            f"{text.format_count(len(files), 'file')}: a cluster has one policy; give its file"
        )
    policy = policies.read_file(files[0])
    exported = admission_policies.export(policy)
    gaps = [output.escape_controls(gap.format()) for gap in exported.gaps]
    lines = [
        f"Written by railwright {version.VERSION} from the policy {policy.digest}: export it again when it changes.",
        "The API server changes pods as the webhook would, with these differences:",
        *(f"- {note}" for note in admission_policies.NOTES),
        *(["Of this policy, these keys cannot be exported:", *(f"- {gap}" for gap in gaps)] if gaps else []),
    ]
    sys.stdout.write("".join(f"# {line}\n" for line in lines))
    if exported.objects:
        sys.stdout.write(formats.format_documents(exported.objects))
    for gap in gaps:
        print(f"{files[0]}: {gap}", file=sys.stderr)
    return output.FINDINGS if gaps else output.OK
