"""Copies the glossary of ARCHITECTURE.md to the site."""

from documentation import examples


def copy_table() -> str:
    """Return the table of the section Glossary in Markdown."""
    text = (examples.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.partition("\n## Glossary\n")[2].partition("\n## ")[0].strip()
