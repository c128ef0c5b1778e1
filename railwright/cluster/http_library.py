"""Imports aiohttp without reading the CA certificates of the machine.

`import aiohttp` creates a TLS context that trusts every CA of the machine, which takes 25 to 100 milliseconds of CPU.
Nothing here uses that context: each request passes one of its own.
"""

import contextlib
import os
from collections.abc import Iterator

_PATHS = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # where OpenSSL reads the CA certificates of the machine


@contextlib.contextmanager
def _hide_certificates() -> Iterator[None]:
    paths = {name: os.environ.get(name) for name in _PATHS}
    os.environ.update(dict.fromkeys(_PATHS, os.devnull))
    try:
        yield
    finally:
        for name, path in paths.items():
            if path is None:
                del os.environ[name]
            else:
                os.environ[name] = path


with _hide_certificates():
    import aiohttp

__all__ = ("aiohttp",)
