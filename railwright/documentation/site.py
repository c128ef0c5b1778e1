"""Hooks of MkDocs (`mkdocs.yml`): links that leave docs/, and nothing from elsewhere.

Owns these two. Runs in MkDocs' own environment, so it imports the standard library only.
"""

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
