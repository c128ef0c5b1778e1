"""Reads and writes certificate files: `NAME.crt` and `NAME.key` in one directory, with their modes, atomically."""

import contextlib
import os
import pathlib
import tempfile

from certs import issue

KEY_MODE = 0o600  # a private key is readable by its owner only
CERTIFICATE_MODE = 0o644  # certificates are public


def read(folder: pathlib.Path, name: str) -> issue.Pair | None:
    """Return the pair `name` in `folder`, or None if a file is missing. Raises OSError if one is unreadable."""
    try:
        return issue.Pair(
            certificate_pem=(folder / f"{name}.crt").read_bytes(),
            key_pem=(folder / f"{name}.key").read_bytes(),
        )
    except FileNotFoundError:
        return None


def write(folder: pathlib.Path, name: str, pair: issue.Pair) -> None:
    """Write both files of `pair`, each by rename. Create `folder` (mode 0700) if it is missing.

    The key is written first, because a server reloads when the certificate changes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(folder / f"{name}.key", pair.key_pem, KEY_MODE)
    replace(folder / f"{name}.crt", pair.certificate_pem, CERTIFICATE_MODE)


def replace(path: pathlib.Path, content: bytes, mode: int) -> None:
    """Write `content` to `path` atomically: readers see the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp sets mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        pathlib.Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(temporary).unlink()
        raise
