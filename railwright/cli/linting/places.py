"""Where in a file a finding's setting stands.

Owns the way from a finding's `where` to a path of the document, and the line inside a script's block. Knows no rules.
"""

from collections.abc import Iterable, Sequence

from railwright.cluster import documents, nodes
from railwright.fabric import names

Path = documents.Path
LAUNCHER = "launcher's "  # in front of `where`, for what another template's mpirun passes
_SCRIPTS = ("command", "args")


def line(document: documents.Document, container: Path, template: Path, name: str, where: str) -> int:
    """The line of a setting of a container; that of the container where the setting itself cannot be found."""
    if where.startswith("env["):
        index = int(where[4:].rstrip("]"))
        return document.line((*container, "env", index, "value"))
    if where.startswith(_SCRIPTS):
        return in_script(document.root, container, name) or document.line(container)
    if where.startswith("line "):
        return document.line((*template, "metadata", "annotations", names.NCCL_CONF))
    return document.line(container)


def of_launcher(document: documents.Document, containers: Iterable[Path], name: str) -> int | None:
    """The line where one of the launchers passes a setting on."""
    return next((found for path in containers if (found := in_script(document.root, path, name))), None)


def in_script(root: nodes.Node, container: Path, name: str) -> int | None:
    """The line of a container's command or arguments that holds a name."""
    short = name.removeprefix("OMPI_MCA_").removeprefix("PRTE_MCA_").removeprefix("PMIX_MCA_")
    for key in _SCRIPTS:
        sequence = _node(root, (*container, key))
        for item in sequence.items if sequence is not None and sequence.kind == "sequence" else ():
            if item.kind == "scalar" and short in item.text:
                return item.line + _offset(item, short)
    return None


def _offset(item: nodes.Node, name: str) -> int:
    """Lines below the one the scalar begins on; only a literal block keeps its lines."""
    if item.style != "|":
        return 0
    return next(number for number, text in enumerate(item.text.split("\n"), start=1) if name in text)


def _node(root: nodes.Node, path: Sequence[str | int]) -> nodes.Node | None:
    node = root
    for step in path:
        found = documents.child(node, step)
        if found is None:
            return None
        node = found[1]
    return node
