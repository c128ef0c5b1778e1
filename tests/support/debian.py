"""Debian packages unpacked into a folder, without root and without an installation.

apt fetches the packages with this machine's configuration: from its lists if these have the packages, otherwise from
lists fetched into the folder. Versions are those of the machine's release.
"""

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

_SECONDS = 600.0


class UnavailableError(Exception):
    """Raised if the packages cannot be fetched. The message has the reason."""


def unpack(root: pathlib.Path, packages: Sequence[str], *, seconds: float = _SECONDS) -> None:
    """Unpack `packages` into `root`, with the dependencies that are not installed, unless that was done before.

    `seconds` bounds each command of apt. Only one process at a time may call this for a `root`. Raises
    UnavailableError.
    """
    if (root / "complete").exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError(f"no apt-get and dpkg to fetch {', '.join(packages)}")
    try:
        _fetch(root, packages, seconds)
    except (subprocess.SubprocessError, OSError) as error:
        output = (getattr(error, "stderr", b"") or b"").decode(errors="replace")[-500:]
        raise UnavailableError(f"apt could not fetch {', '.join(packages)}: {error}: {output}") from None


def library_paths(root: pathlib.Path) -> list[str]:
    """Return the folders of shared libraries below an unpacked `root`, for LD_LIBRARY_PATH."""
    libraries = [str(path) for folder in ("usr/lib", "lib") for path in (root / folder).glob("*-linux-gnu*")]
    nested = [str(path.parent) for folder in libraries for path in pathlib.Path(folder).glob("*/*.so*")]
    return list(dict.fromkeys([*libraries, *nested]))


def _fetch(root: pathlib.Path, packages: Sequence[str], seconds: float) -> None:
    shutil.rmtree(root, ignore_errors=True)
    debs = root / "debs"
    debs.mkdir(parents=True)
    options = _options(root, packages, seconds)
    required = list(dict.fromkeys([*packages, *_missing(options, packages)]))
    print(f"fetching {len(required)} Debian packages into {root}", file=sys.stderr)
    _run(["apt-get", *options, "-o", "APT::Sandbox::User=root", "download", *required], seconds, cwd=debs)
    for path in sorted(debs.glob("*.deb")):
        _run(["dpkg", "-x", str(path), str(root)], seconds)
    shutil.rmtree(debs)
    (root / "complete").touch()


def _options(root: pathlib.Path, packages: Sequence[str], seconds: float) -> list[str]:
    """Return options of apt: none if its lists have the packages; otherwise those for lists in `root`."""
    if _knows([], packages):
        return []
    lists, archives = root / "apt" / "lists", root / "apt" / "archives"
    for folder in (lists / "partial", archives / "partial"):
        folder.mkdir(parents=True)
    settings = [f"Dir::State::lists={lists}", f"Dir::Cache={root / 'apt'}", "APT::Sandbox::User="]
    options = [part for setting in settings for part in ("-o", setting)]
    _run(["apt-get", *options, "update"], seconds)
    return options


def _knows(options: list[str], packages: Sequence[str]) -> bool:
    command = ["apt-cache", *options, "show", "--no-all-versions", *packages]
    return subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS).returncode == 0


def _missing(options: list[str], packages: Sequence[str]) -> list[str]:
    """Return the packages that an installation would add, with dependencies and without recommended ones."""
    command = ["apt-get", *options, "--simulate", "--no-install-recommends", "install", *packages]
    simulated = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    return [line.split()[1] for line in simulated.stdout.decode().splitlines() if line.startswith("Inst ")]


def _run(command: list[str], seconds: float, cwd: pathlib.Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, capture_output=True, check=True, timeout=seconds)
