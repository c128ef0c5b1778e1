"""Certificate files: `NAME.crt` and `NAME.key` in one folder.

Owns names, modes and atomicity on disk. Refuses to know what stands in them.
"""

import contextlib
import os
import pathlib
import tempfile

from certs import issue

KEY_MODE = 0o600  # only the owner reads a private key
CERTIFICATE_MODE = 0o644  # public by nature


def read(folder: pathlib.Path, name: str) -> issue.Pair | None:
    """Return the pair `name` of `folder`, or None where either file is missing. Raises OSError if unreadable."""
    try:
        return issue.Pair(
            certificate_pem=(folder / f"{name}.crt").read_bytes(),
            key_pem=(folder / f"{name}.key").read_bytes(),
        )
    except FileNotFoundError:
        return None


def write(folder: pathlib.Path, name: str, pair: issue.Pair) -> None:
    """Write both files of `pair`, each by rename, making `folder` (mode 0700) where it is missing.

    The key goes first: a server that reloads when its certificate changes then finds both.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(folder / f"{name}.key", pair.key_pem, KEY_MODE)
    replace(folder / f"{name}.crt", pair.certificate_pem, CERTIFICATE_MODE)


def replace(path: pathlib.Path, content: bytes, mode: int) -> None:
    """Put `content` at `path` in one step: a reader sees the old file or the new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
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
