"""The files of the page, read once, and the security headers of the dashboard.

The files are plain HTML, CSS and ES modules. They run unchanged, from this package, without a network.
"""

import hashlib
import importlib.resources
from collections.abc import Mapping
from typing import NamedTuple

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Only our own files; no inline script or style, no markup from text (trusted types), no framing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Asset(NamedTuple):
    """One file."""

    body: bytes
    content_type: str
    etag: str


def load() -> Mapping[str, Asset]:
    """Return the files by path; `/` is the page."""
    files = {}
    for entry in importlib.resources.files("railwright.dashboard").joinpath("page").iterdir():
        name = entry.name
        content_type = _TYPES.get(name[name.rfind(".") :])
        if content_type is not None:
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            files["/" if name == "index.html" else f"/page/{name}"] = Asset(body, content_type, etag)
    return files
