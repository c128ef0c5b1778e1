"""Hooks of MkDocs (`mkdocs.yml`): pages that are not written yet, links that leave docs/, and nothing from elsewhere.

Owns these three. Runs in MkDocs' own environment, so it imports the standard library only.
"""

import pathlib
import re
from typing import Any

_OUTSIDE = re.compile(
    r"\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<up>(?:\.\./)+)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
)


class ElsewhereError(Exception):
    """A page that would fetch something from another server: the site has to work without a network."""


def on_config(config: Any) -> Any:
    """Leave out of the menu what `extra.awaited` names and docs/ does not have yet."""
    docs, awaited = pathlib.Path(config["docs_dir"]), set(config["extra"].get("awaited", ()))
    config["nav"] = _there(config["nav"], lambda path: path not in awaited or (docs / path).exists())
    return config


def _there(tree: Any, keep: Any) -> Any:
    """The menu without the pages that are not kept, and without headings that nothing is left under."""
    if isinstance(tree, list):
        return [each for each in (_there(part, keep) for part in tree) if each]
    if isinstance(tree, dict):
        parts = {title: _there(each, keep) for title, each in tree.items()}
        return {title: each for title, each in parts.items() if each}
    return tree if keep(tree) else None


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to files of the tree to the repository, or leave their text where none is configured."""
    del files
    depth = page.file.src_uri.count("/")
    base = config.get("repo_url")

    def led(found: re.Match[str]) -> str:
        if found["up"].count("/") <= depth:
            return found[0]  # inside docs/
        text, path, anchor = found["text"], found["path"], found["anchor"] or ""
        return f"[{text}]({base.rstrip('/')}/blob/main/{path}{anchor})" if base else text

    return _OUTSIDE.sub(led, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Raise ElsewhereError for a page that is not whole by itself."""
    del config
    if found := _FETCHED.search(output):
        raise ElsewhereError(f"{page.file.src_uri}: {found[0][:200]}: the site must not load from another server")
    return output
