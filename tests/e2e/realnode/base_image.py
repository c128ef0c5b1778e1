"""An image like python:3.13-slim, made of this machine's files, because no registry is used.

It has CPython with its standard library (no tests, no compiled files), the shared libraries that
Python needs, a shell by busybox and the machine's CA certificates. Unlike that image it has no apt and no Debian.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence

CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
_IGNORED = shutil.ignore_patterns(
    "__pycache__", "*.pyc", "test", "tests", "idle_test", "idlelib", "tkinter", "turtledemo", "site-packages",
    "config-*", "*.a",
    "_tkinter*", "_test*", "_ctypes_test*", "xxlimited*",
)  # fmt: skip
_TOOLS = ("sh", "ls", "cat", "cp", "mv", "rm", "mkdir", "env", "id", "sleep", "true", "ip", "ping", "grep")
_WHEELS = (  # what manylinux wheels may expect of every distribution, by PEP 600
    "libgcc_s.so.1", "libstdc++.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libc.so.6", "libnsl.so.1",
    "libutil.so.1", "libpthread.so.0", "libresolv.so.2",
)  # fmt: skip


def find_obstacle(version: str) -> str:
    """Return why no image of Python `version` can be made here, in one line; empty if one can."""
    running = "{}.{}".format(*sys.version_info)
    if running != version:
        return f"the image has Python {version}, and .venv has {running}"
    if sys.base_prefix == "/usr":
        return "the image is made of a Python with a prefix of its own, and .venv is made of /usr's"
    return "" if CERTIFICATES.exists() else f"{CERTIFICATES} is missing: pip needs it inside the image"


def make(root: pathlib.Path, busybox: pathlib.Path) -> None:
    """Make the files of the image below `root`."""
    for name in ("bin", "dev", "etc/ssl/certs", "proc", "root", "run", "sys", "usr/local/bin", "var/tmp"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin").symlink_to("../bin")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    shutil.copy(busybox, root / "bin/busybox")
    for name in _TOOLS:
        (root / "bin" / name).symlink_to("busybox")
    _copy_python(root)
    for path in _list_libraries(root):
        _copy_library(root, path)


def _copy_python(root: pathlib.Path) -> None:
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, root / "usr/local/lib" / library.name, symlinks=True, ignore=_IGNORED)
    program = root / "usr/local/bin" / library.name
    shutil.copy(os.path.realpath(sys.executable), program)
    bundled = library / "ensurepip/_bundled"
    shutil.copytree(bundled, root / "usr/local/lib" / library.name / "ensurepip/_bundled", dirs_exist_ok=True)
    packages = root / "usr/local/lib" / library.name / "site-packages"
    for wheel in bundled.glob("pip-*.whl"):
        zipfile.ZipFile(wheel).extractall(packages)  # CPython's own copy of pip
    for name in ("python", "python3"):
        (program.parent / name).symlink_to(program.name)


def _list_libraries(root: pathlib.Path) -> set[str]:
    """Return the shared libraries that Python and its modules need, found by ldd, and those that wheels expect."""
    modules = [*(root / "usr/local/bin").glob("python3.*"), *(root / "usr/local/lib").rglob("lib-dynload/*.so")]
    output = subprocess.run(["ldd", *map(str, modules)], capture_output=True, text=True, check=True).stdout
    paths = set(re.findall(r"(/\S+) \(0x", output))
    candidates = {str(pathlib.Path(path).with_name(name)) for path in paths for name in _WHEELS}
    return paths | {path for path in candidates if pathlib.Path(path).exists()}


def copy_program(root: pathlib.Path, program: pathlib.Path, path: str, libraries: Sequence[str]) -> None:
    """Copy a program or library to `path` of the image, and its libraries to the folders of the loader.

    `libraries` are folders with libraries, besides the machine's own.
    """
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, target)
    copy_libraries(root, [program], libraries)


def copy_libraries(root: pathlib.Path, files: Sequence[pathlib.Path], libraries: Sequence[str]) -> None:
    """Copy the libraries that the files need to the folders of the loader; `libraries` are folders with libraries."""
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": ":".join(libraries)}
    output = subprocess.run(["ldd", *files], env=environment, capture_output=True, text=True, check=False).stdout
    for library in sorted(set(re.findall(r"(/\S+) \(0x", output))):
        place = root / "usr/lib" / pathlib.Path(library).name
        if not place.exists() and not (root / library.lstrip("/")).exists():
            shutil.copy(library, place)


def _copy_library(root: pathlib.Path, path: str) -> None:
    """Copy a library to its own path, or from Python's prefix to /usr/lib, where the loader looks."""
    target = f"/usr/lib/{pathlib.Path(path).name}" if path.startswith(sys.base_prefix) else path
    place = root / target.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)
