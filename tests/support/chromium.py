"""A headless Chromium for tests: the one on PATH, else Debian's packages unpacked into the cache, without root.

Owns which program and what it needs of its environment. Nothing is installed.
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
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>/usr/share/fonts</dir><cachedir>{cache}</cachedir></fontconfig>
"""


class MissingError(Exception):
    """There is no Chromium here and none can be had; the message says why."""


class Found(msgspec.Struct, frozen=True):
    """A program, and the environment it needs beside ours."""

    program: str
    environment: dict[str, str]


def find() -> Found:
    """Chromium, fetched where need be (about 130 MB, once). Raises MissingError."""
    for name in NAMES:
        if program := shutil.which(name):
            return Found(program, {})
    root = _cache() / "root"
    program = root / "usr/lib/chromium/chromium-headless-shell"
    with _alone(root.parent):
        try:
            debian.unpack(root, _PACKAGES)
        except debian.UnavailableError as error:
            raise MissingError(f"no Chromium on PATH, and {error}: install chromium or google-chrome") from None
    fonts = root / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=root / "usr/share/fonts", cache=root / "fontcache"))
    return Found(str(program), {"LD_LIBRARY_PATH": ":".join(debian.library_paths(root)), "FONTCONFIG_FILE": str(fonts)})


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Within it no other run of the tests fetches."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cache() -> pathlib.Path:
    if chosen := os.environ.get("RAILWRIGHT_CACHE"):  # as for the control plane's programs
        return pathlib.Path(chosen) / "chromium"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright" / "chromium"


if __name__ == "__main__":
    print(find().program)
