"""An image with Debian's PyTorch, for jobs that use torch.distributed: what Python and torch need, and a shell."""

import hashlib
import pathlib
import shutil

import debian
from plane import binaries

from realnode import base_image, builds, images

NAME = "localhost/torch:1"
_PACKAGES = ("python3-torch",)
_MODULES = ("astunparse", "numpy", "six.py", "torch", "typing_extensions.py")  # of those, what torch imports
_IGNORED = shutil.ignore_patterns("__pycache__", "test", "tests", "include", "test_*", "*_test", "*_benchmark", "*.a")


def build() -> images.Image:
    """Make the image unless it is cached. Raises debian.UnavailableError."""
    source = b"".join(pathlib.Path(module.__file__ or "").read_bytes() for module in (base_image, debian))
    source += pathlib.Path(__file__).read_bytes() + pathlib.Path("/etc/os-release").read_bytes()
    folder = binaries.cache() / f"node-torch-{hashlib.sha256(source).hexdigest()[:16]}"
    image = images.Image(NAME, folder / "torch.tar")
    with binaries.lock_folder(folder):
        if not image.archive.exists():
            packages, root = folder / "packages", folder / "root"
            debian.unpack(packages, _PACKAGES, standalone=True)
            shutil.rmtree(root, ignore_errors=True)
            _make(root, packages)
            images.write_layers(image, [root], {"Cmd": ["/bin/sh"]})
            shutil.rmtree(root)
            shutil.rmtree(packages)
    return image


def _make(root: pathlib.Path, packages: pathlib.Path) -> None:
    for name in ("bin", "etc", "lib64", "tmp", "usr/bin", "usr/lib/python3/dist-packages"):
        (root / name).mkdir(parents=True)
    shutil.copy(builds.locate().busybox, root / "bin/busybox")
    for name in ("sh", "sleep", "cat", "ls"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (loader,) = packages.glob("lib/*-linux-gnu/ld-linux-*.so.*")
    shutil.copy(loader, root / "lib64")
    (library,) = packages.glob("usr/lib/python3.*")
    shutil.copytree(library, root / "usr/lib" / library.name, ignore=_IGNORED)
    shutil.copy(packages / "usr/bin" / library.name, root / "usr/bin/python3")
    for name in _MODULES:
        path = f"usr/lib/python3/dist-packages/{name}"
        if (packages / path).is_dir():
            shutil.copytree(packages / path, root / path, ignore=_IGNORED, symlinks=True)
        else:
            shutil.copy(packages / path, root / path)
    _resolve_links(root, packages)
    files = [root / "usr/bin/python3", *root.rglob("*.so")]
    base_image.copy_libraries(root, files, [*debian.library_paths(packages), str(packages / "usr/lib")])


def _resolve_links(root: pathlib.Path, packages: pathlib.Path) -> None:
    """Replace links to files elsewhere in the packages by copies; remove those that lead nowhere."""
    for link in [path for path in root.rglob("*") if path.is_symlink() and not path.exists()]:
        place = packages / link.relative_to(root)
        target = link.readlink()
        link.unlink()
        source = packages / str(target).lstrip("/") if target.is_absolute() else place.parent / target
        if source.is_file():
            shutil.copy(source, link)
