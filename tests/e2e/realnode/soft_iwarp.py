"""The kernel module of soft iWARP (siw), compiled for the virtual machine's kernel, which Debian builds without it.

Its source is that of Debian's kernel, in the same version as the headers.
"""

import os
import pathlib
import shutil
import subprocess
import tarfile

import debian

PACKAGES = ("linux-headers-amd64", "linux-source", "make")
_SOURCE = "drivers/infiniband/sw/siw"


def build(packages: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Compile the module in `folder` unless it is there, and return it. Raises subprocess.CalledProcessError.

    `packages` is the folder with PACKAGES and what they depend on. Takes about 20 seconds of CPU.
    """
    module = folder / "siw.ko"
    if module.exists():
        return module
    (archive,) = (packages / "usr/src").glob("linux-source-*.tar.xz")
    source = _unpack_source(archive, folder)
    (headers,) = (path.parent for path in (packages / "usr/src").glob("linux-headers-*/.config"))
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace(" /usr/src/", f" {packages}/usr/src/"))
    environment = {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:{packages}/usr/bin",
        "LD_LIBRARY_PATH": ":".join(debian.library_paths(packages)),
    }
    command = ["make", "-C", str(headers), f"M={source}", "CONFIG_RDMA_SIW=m", "modules"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    subprocess.run(["strip", "--strip-debug", str(source / "siw.ko")], env=environment, check=True)
    (source / "siw.ko").rename(module)
    shutil.rmtree(source)
    archive.unlink()  # the whole kernel's source
    return module


def _unpack_source(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpack the driver's files, which follow one another in the archive, and return their folder."""
    target = folder / "siw"
    target.mkdir(parents=True, exist_ok=True)
    has_begun = False
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            path = pathlib.PurePath(member.name)
            if is_driver := path.parent.match(f"*/{_SOURCE}") and member.isfile():
                tar.makefile(member, str(target / path.name))
            if has_begun and not is_driver:
                break
            has_begun = is_driver
    return target
