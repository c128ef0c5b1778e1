"""Formats the rows of `railwright check` for docs/reference/check.md: the explanation of each, and what it reads."""

from collections.abc import Iterator

from railwright.cli.checking import snapshots, table
from railwright.fabric import names

# what stands for several sources, or is no list of objects
_OTHERS = {
    "everything": "what all rows read",
    "workloads": "`list` for each kind of workload that railwright knows",
    snapshots.DRY_RUNS: "`create pods` in the namespace of the dry run",
    snapshots.NAMESPACED_PODS: "`list pods` in opted-in namespaces",
    snapshots.PERMISSIONS: "`create selfsubjectaccessreviews`",
    snapshots.SERVER_PERMISSIONS: "`create subjectaccessreviews.authorization.k8s.io -A`",
}
_RIGHTS = {source.name: f"`{source.right.format(namespace=names.NAMESPACE)}`" for source in snapshots.SOURCES}


def format_rows(markdown: str) -> str:
    """Return a section for each row in the text of the table."""
    sections = []
    for anchor, fields in table.parse(markdown).items():
        reads, uses = (list(_list_rights(fields.get(key, ""))) for key in ("reads", "uses"))
        rights = [f"Reads {', '.join(reads)}."] if reads else []
        rights += [f"Also reads, if you may: {', '.join(uses)}."] if uses else []
        sections.append(f"### {anchor}\n\n{fields['text']}\n\n{' '.join(rights)}")
    return "\n\n".join(sections)


def _list_rights(sources: str) -> Iterator[str]:
    for source in sources.split(", ") if sources else ():
        yield _OTHERS.get(source) or _RIGHTS[source]
        if source == "policy" and snapshots.FABRIC_POLICY not in sources:
            yield _RIGHTS[snapshots.FABRIC_POLICY]
