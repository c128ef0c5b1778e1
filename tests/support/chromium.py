"""A headless Chromium for tests: the one on PATH, else Debian's packages unpacked into the cache, without root.

Finds the program and the environment variables that it needs. Installs nothing on the machine.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator

import debian
import msgspec

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium-headless-shell", "fonts-inter")
_SECONDS = 100.0  # for the lists of packages, and for the packages: less than pytest's limit of a test
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>/usr/share/fonts</dir><cachedir>{cache}</cachedir></fontconfig>
"""


class MissingError(Exception):
    """Raised if no Chromium was found and none could be downloaded. The message states the reason."""


class Installation(msgspec.Struct, frozen=True):
    """A browser's program, and the variables to add to the environment."""

    program: str
    environment: dict[str, str]


def find() -> Installation:
    """Return a Chromium; download one into the cache if necessary (about 130 MB, once). Raises MissingError."""
    for name in NAMES:
        if program := shutil.which(name):
            return Installation(program, {})
    root = _get_cache() / "root"
    program = root / "usr/lib/chromium/chromium-headless-shell"
    fonts = root / "fonts.conf"
    with _lock(root.parent):
        try:
            debian.unpack(root, _PACKAGES, seconds=_SECONDS)
        except debian.UnavailableError as error:
            raise MissingError(f"no Chromium on PATH, and {error}: install chromium or google-chrome") from None
        _write_if_changed(fonts, _FONTS.format(fonts=root / "usr/share/fonts", cache=root / "fontcache"))
    return Installation(
        str(program), {"LD_LIBRARY_PATH": ":".join(debian.library_paths(root)), "FONTCONFIG_FILE": str(fonts)}
    )


def _write_if_changed(path: pathlib.Path, text: str) -> None:
    """Write a file that the browsers of other test runs may be reading."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


@contextlib.contextmanager
def _lock(folder: pathlib.Path) -> Iterator[None]:
    """Hold a file lock, so that only one test run downloads at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _get_cache() -> pathlib.Path:
    if cache := os.environ.get("RAILWRIGHT_CACHE"):  # as for the control plane's programs
        return pathlib.Path(cache) / "chromium"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright" / "chromium"


if __name__ == "__main__":
    print(find().program)
