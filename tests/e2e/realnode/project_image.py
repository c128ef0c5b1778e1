"""railwright's own image, built from the Containerfile of this work tree and cached by the content of its layers."""

import hashlib
import pathlib
import re
import shutil
import time

from plane import binaries

from realnode import base_image, builds, containerfile, images

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAME = "localhost/railwright"
_RETENTION_SECONDS = 3 * 24 * 3600  # layers and archives that no build has used for as long are removed


def find_obstacle() -> str:
    """Return why the image cannot be built on this machine, in one line; empty if it can."""
    base = containerfile.find_base(_read())
    version = re.search(r"python:(3\.\d+)", base)
    assert version is not None, f"Containerfile: {base} is no image of Python"
    return base_image.find_obstacle(version[1])


def build() -> images.Image | None:
    """Build the image, and return it with a tag that is the digest of its layers; None if it cannot be built."""
    if reason := find_obstacle():
        binaries.tell(f"railwright's image is not built: {reason}")
        return None
    binaries.tell("railwright's image: building what has changed since the last build")
    started = time.monotonic()
    folder = _folder()
    with binaries.lock_folder(folder):
        builder = containerfile.Builder(ROOT, _make_base(), folder / "layers")
        stage = builder.build(_read())
        key = hashlib.sha256(repr((stage.layers, stage.config, stage.environment)).encode()).hexdigest()[:16]
        image = images.Image(f"{NAME}:{key}", folder / f"{key}.tar")
        if image.archive.exists():
            image.archive.touch()
        else:
            config = {**stage.config, "Env": [f"{name}={value}" for name, value in stage.environment.items()]}
            images.write_layers(image, stage.layers, config)
        _prune(folder)
    binaries.tell(f"railwright's image {image.name}: ready after {time.monotonic() - started:.0f} s")
    return image


def _read() -> str:
    return (ROOT / "Containerfile").read_text()


def make_base() -> pathlib.Path:
    """Return the folder of the lowest layer, made once; images that have it in common are unpacked faster."""
    with binaries.lock_folder(_folder()):
        return _make_base()


def _folder() -> pathlib.Path:
    return binaries.cache() / "node-image"


def _make_base() -> pathlib.Path:
    source = pathlib.Path(base_image.__file__).read_bytes() + pathlib.Path(base_image.CERTIFICATES).read_bytes()
    base = _folder() / "layers" / f"base-{hashlib.sha256(source).hexdigest()[:16]}"
    if not base.exists():
        temporary = base.with_name(f".{base.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        base_image.make(temporary, builds.locate().busybox)
        temporary.rename(base)
    base.touch()
    return base


def _prune(folder: pathlib.Path) -> None:
    oldest = time.time() - _RETENTION_SECONDS
    for path in [*folder.glob("*.tar"), *(folder / "layers").iterdir()]:
        if path.stat().st_mtime < oldest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
