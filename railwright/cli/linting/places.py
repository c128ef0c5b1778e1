"""Finds the line of a finding's setting in a file, from the finding's `where`."""

from collections.abc import Iterable, Sequence

from railwright.cluster import documents, nodes
from railwright.fabric import names

Path = documents.Path
LAUNCHER = "launcher's "  # prefix of `where` for settings that another template's mpirun passes
_SCRIPTS = ("command", "args")


def find_line(document: documents.Document, container: Path, template: Path, name: str, where: str) -> int:
    """Return the line of a setting of a container, or of the container if the setting has no line of its own."""
    if where.startswith("env["):
        index = int(where[4:].rstrip("]"))
        return document.line((*container, "env", index, "value"))
    if where.startswith(_SCRIPTS):
        return find_script_line(document.root, container, name) or document.line(container)
    if where.startswith("line "):
        return document.line((*template, "metadata", "annotations", names.NCCL_CONF))
    return document.line(container)


def find_launcher_line(document: documents.Document, containers: Iterable[Path], name: str) -> int | None:
    """Return the line in which a launcher passes a setting, if any."""
    return next((line for path in containers if (line := find_script_line(document.root, path, name))), None)


def find_script_line(root: nodes.Node, container: Path, name: str) -> int | None:
    """Return the line of a container's command or arguments that contains a name, if any."""
    short = name.removeprefix("OMPI_MCA_").removeprefix("PRTE_MCA_").removeprefix("PMIX_MCA_")
    for key in _SCRIPTS:
        sequence = _find_node(root, (*container, key))
        for item in sequence.items if sequence is not None and sequence.kind == "sequence" else ():
            if item.kind == "scalar" and short in item.text:
                return item.line + _count_lines(item, short)
    return None


def _count_lines(item: nodes.Node, name: str) -> int:
    """Return the number of lines below the start of a scalar; only a literal block keeps its lines."""
    if item.style != "|":
        return 0
    return next(number for number, text in enumerate(item.text.split("\n"), start=1) if name in text)


def _find_node(root: nodes.Node, path: Sequence[str | int]) -> nodes.Node | None:
    node = root
    for step in path:
        child = documents.child(node, step)
        if child is None:
            return None
        node = child[1]
    return node
