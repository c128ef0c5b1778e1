"""Runs `railwright policy convert`: writes a policy as the manifest of a FabricPolicy or of a ConfigMap.

Comments of a document and of a ConfigMap are kept. Those of a FabricPolicy are lost.
"""

import argparse
import re
import sys
import textwrap
from typing import Any

from railwright.cli import formats, options, output, policies
from railwright.cluster import installed_names, manifests
from railwright.fabric import names
from railwright.fabric.policy import model

FABRIC_POLICY, CONFIG_MAP = "fabricpolicy", "configmap"  # values of --to
_METADATA = {"name": installed_names.POLICY, "namespace": installed_names.NAMESPACE}
# what a document has beside the keys of a spec: the marks of a document, and two keys of the resource itself
_HEAD = re.compile(r"^(---|\.\.\.|apiVersion:|kind:).*\n?", re.MULTILINE)


def convert(arguments: argparse.Namespace) -> int:
    """Print the manifest and return 0. Raise UnreadableError for an unreadable file or an invalid policy."""
    files = options.find_files(arguments)
    if len(files) > 1:
        raise output.UnreadableError(f"{len(files)} files: a cluster has one policy; give its file")
    text = output.read_text(files[0])
    fix = f"correct it and check it with railwright policy validate {files[0]}"
    policy = policies.require_valid(manifests.read(text), files[0], fix)
    write = _write_config_map if arguments.to == CONFIG_MAP else _write_fabric_policy
    sys.stdout.write(write(text, policy))
    return output.OK


def _write_config_map(text: str, _: model.Policy) -> str:
    """Return the manifest of a ConfigMap with the policy in the text of a file."""
    document = manifests.find_document_text(text)
    if document is None:
        document = formats.format_yaml(manifests.read_tree(text))
    return formats.format_yaml(_build_manifest("v1", "ConfigMap", "data", {names.POLICY_KEY: document}))


def _write_fabric_policy(text: str, policy: model.Policy) -> str:
    """Return the manifest of a FabricPolicy with the policy in the text of a file."""
    document = manifests.find_document_text(text)
    if document is not None and not document.lstrip().startswith("{"):
        head = _build_manifest(names.POLICY_API_VERSION, names.POLICY_KIND)
        spec = textwrap.indent(_HEAD.sub("", document).strip("\n") + "\n", "  ")
        manifest = f"{formats.format_yaml(head)}spec:\n{spec}"
        converted = manifests.read(manifest)
        if isinstance(converted, model.Policy) and converted.document == policy.document:
            return manifest
    # in a FabricPolicy already, or JSON, or not a block of keys at the left margin
    tree = manifests.read_tree(text)
    spec_tree = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    return formats.format_yaml(_build_manifest(names.POLICY_API_VERSION, names.POLICY_KIND, "spec", spec_tree))


def _build_manifest(version: str, kind: str, key: str = "", content: Any = None) -> dict[str, Any]:
    """Return an object with the name of the policy, and with `content` under `key` if there is one."""
    return {"apiVersion": version, "kind": kind, "metadata": _METADATA, **({key: content} if key else {})}
