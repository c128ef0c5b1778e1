"""An image for ranks: Open MPI, sshd, UCX, perftest and Mooncake of Debian and PyPI, on the layer of the base image.

SSHD is the command of a worker pod: it makes host keys and serves without PAM and sshd_config, which the image lacks.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

import debian
from plane import binaries

from realnode import base_image, images, project_image

NAME = "localhost/mpi:1"
SSHD = "ssh-keygen -A && exec /usr/sbin/sshd -f /dev/null -D -e -o UsePAM=no -o StrictModes=no -o PermitRootLogin=yes"
_PACKAGES = ("openmpi-bin", "openssh-server", "openssh-client", "ibverbs-providers", "perftest", "ucx-utils")
_MOONCAKE = pathlib.Path(__file__).parents[1] / "mooncake.txt"
_UNUSED = (  # large, or in need of large libraries
    "site-packages/mooncake/store.so",
    "site-packages/mooncake/mooncake_client",
    "site-packages/mooncake/mooncake_master",
    "site-packages/mooncake/transfer_engine_bench",
    "site-packages/*.libs/libetcd_wrapper-*",
    "hwloc/hwloc_xml_libxml.so",  # hwloc reads XML without it
)
_MERGE = (
    'tar --create --directory "$0" --exclude ./apt --exclude ./complete . |'
    ' tar --extract --keep-directory-symlink --directory "$1"'
)
_ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534:sshd:/run/sshd:/bin/false\n"


def build() -> images.Image:
    """Make the image unless it is cached. Raises debian.UnavailableError."""
    source = b"".join(pathlib.Path(module.__file__ or "").read_bytes() for module in (base_image, debian))
    paths = (pathlib.Path(__file__), pathlib.Path("/etc/os-release"), _MOONCAKE)
    source += b"".join(path.read_bytes() for path in paths)
    folder = binaries.cache() / f"node-mpi-{hashlib.sha256(source).hexdigest()[:16]}"
    image = images.Image(NAME, folder / "mpi.tar")
    with binaries.lock_folder(folder):
        if not image.archive.exists():
            debian.unpack(folder / "packages", _PACKAGES)
            _install_mooncake(folder / "packages")
            for path in [path for pattern in _UNUSED for path in (folder / "packages/usr").rglob(pattern)]:
                path.unlink()
            shutil.rmtree(folder / "root", ignore_errors=True)
            base = project_image.make_base()
            _make(folder / "root", folder / "packages", base)
            images.write_layers(image, [base, folder / "root"], {"Cmd": ["/bin/sh"]})
            shutil.rmtree(folder / "root")
    return image


def _make(root: pathlib.Path, packages: pathlib.Path, base: pathlib.Path) -> None:
    for name in ("bin", "etc", "run/sshd", "usr"):
        (root / name).mkdir(parents=True)
    (root / "usr/bin").symlink_to("../bin")  # as in the base
    subprocess.run(["sh", "-ec", _MERGE, packages, root], check=True)
    for path in _list_libraries(root, packages):
        target = root / path.lstrip("/")
        if not target.exists() and not (base / path.lstrip("/")).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    (root / "etc/passwd").write_text(_ACCOUNTS)
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _install_mooncake(packages: pathlib.Path) -> None:
    """Install the transfer engine where the image's Python looks. Raises debian.UnavailableError."""
    modules = packages / "usr/local/lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--upgrade"]
    try:
        subprocess.run([*pip, "--require-hashes", "--target", modules, "-r", _MOONCAKE], check=True)
    except subprocess.CalledProcessError as error:
        raise debian.UnavailableError(f"pip could not fetch Mooncake: {error}") from None


def _list_libraries(root: pathlib.Path, packages: pathlib.Path) -> set[str]:
    """Return the machine's own libraries that the packages need besides their own."""
    names = (
        "bin/ssh",
        "bin/ssh-keygen",
        "sbin/sshd",
        "bin/orted",
        "bin/orterun",
        "bin/ib_write_bw",
        "bin/ucx_perftest",
    )
    programs = [packages / "usr" / name for name in names]
    libraries = [path for path in packages.rglob("*.so*") if path.is_file()]
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": ":".join(debian.library_paths(packages))}
    command = ["ldd", *(str(path) for path in (*programs, *libraries) if path.exists())]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    return {path for path in re.findall(r"(/\S+) \(0x", output) if not path.startswith(str(packages))}
