"""A headless Chromium for tests: the one on PATH, else Debian's packages unpacked into the cache, without root.

Owns finding and fetching. The packages and the libraries they need come through apt as this machine has it configured:
from its lists where they know Chromium, else from lists fetched into the cache. Nothing is installed.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import msgspec

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium-headless-shell", "fonts-inter")
_SECONDS = 600
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
        _ensure(root)
    fonts = root / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=root / "usr/share/fonts", cache=root / "fontcache"))
    libraries = [str(each) for each in (root / "usr/lib").glob("*-linux-gnu*")]
    extra = [str(each.parent) for folder in libraries for each in pathlib.Path(folder).glob("*/*.so*")]
    paths = list(dict.fromkeys([*libraries, *extra]))
    return Found(str(program), {"LD_LIBRARY_PATH": ":".join(paths), "FONTCONFIG_FILE": str(fonts)})


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Within it no other run of the tests fetches."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure(root: pathlib.Path) -> None:
    if (root / "complete").exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingError("no Chromium on PATH, and no apt to fetch Debian's: install chromium or google-chrome")
    try:
        _fetch(root)
    except (subprocess.SubprocessError, OSError) as error:
        told = getattr(error, "stderr", b"") or b""
        raise MissingError(f"apt could not fetch Chromium: {error}: {told.decode(errors='replace')[-500:]}") from None


def _cache() -> pathlib.Path:
    if chosen := os.environ.get("RAILWRIGHT_CACHE"):  # as for the control plane's programs
        return pathlib.Path(chosen) / "chromium"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright" / "chromium"


def _fetch(root: pathlib.Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    debs = root / "debs"
    debs.mkdir(parents=True)
    options = _options(root)
    wanted = _needed(options)
    print(f"fetching Chromium: {len(wanted)} Debian packages into {root}", file=sys.stderr)
    _run(["apt-get", *options, "download", *wanted], cwd=debs)
    for each in sorted(debs.glob("*.deb")):
        _run(["dpkg", "-x", str(each), str(root)])
    shutil.rmtree(debs)
    (root / "complete").touch()


def _options(root: pathlib.Path) -> list[str]:
    """Of apt: none where its lists know Chromium; else our own lists, which need no root."""
    if _needed([]):
        return []
    lists, archives = root / "apt" / "lists", root / "apt" / "archives"
    for each in (lists / "partial", archives / "partial"):
        each.mkdir(parents=True)
    own = [f"Dir::State::lists={lists}", f"Dir::Cache={root / 'apt'}", "APT::Sandbox::User="]
    options = [part for each in own for part in ("-o", each)]
    _run(["apt-get", *options, "update"])
    return options


def _needed(options: list[str]) -> list[str]:
    """The packages that are not installed, dependencies too, without anything that is only recommended."""
    simulated = ["apt-get", *options, "--simulate", "--no-install-recommends", "install", *_PACKAGES]
    done = subprocess.run(simulated, capture_output=True, check=False, timeout=_SECONDS)
    return [line.split()[1] for line in done.stdout.decode().splitlines() if line.startswith("Inst ")]


def _run(command: list[str], cwd: pathlib.Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, capture_output=True, check=True, timeout=_SECONDS)


if __name__ == "__main__":
    print(find().program)
