"""Hooks of MkDocs (`mkdocs.yml`): they redirect links that leave docs/, and forbid loading from other servers.

The module runs in MkDocs' environment, so it imports only the standard library.
"""

import re
from typing import Any

_OUTSIDE = re.compile(
    r"\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<up>(?:\.\./)+)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?:"
)


class ExternalResourceError(Exception):
    """Raised if a page loads something from another server, because the site must work offline."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links to files outside docs/ to the repository. Without a `repo_url`, keep only their text."""
    del files
    depth = page.file.src_uri.count("/")
    base = config.get("repo_url")

    def point_to_repository(match: re.Match[str]) -> str:
        if match["up"].count("/") <= depth:
            return match[0]  # inside docs/
        text, path, anchor = match["text"], match["path"], match["anchor"] or ""
        return f"[{text}]({base.rstrip('/')}/blob/main/{path}{anchor})" if base else text

    return _OUTSIDE.sub(point_to_repository, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Raise ExternalResourceError for a page that loads from another server."""
    del config
    if match := _FETCHED.search(output):
        raise ExternalResourceError(
            f"{page.file.src_uri}: {match[0][:200]}: the site must not load from another server"
        )
    return output
