"""Writes recorded file trees of hosts to disk for a test. Each is one text file below tests/data/sysfs.

base NAME             start from another tree
PATH = TEXT           a file of one line
PATH <<               a file; its lines follow, each behind "| "
PATH -> TARGET        a symbolic link
absent PATH           what the base has there is gone
"""

import pathlib
import shutil

DATA = pathlib.Path(__file__).parents[1] / "data" / "sysfs"


def lay_out(name: str, root: pathlib.Path) -> pathlib.Path:
    """Return the tree `name` below root."""
    current: pathlib.Path | None = None
    for line in (DATA / f"{name}.tree").read_text().splitlines():
        if line.startswith("| ") or line == "|":
            assert current is not None, line
            with current.open("a") as file:
                file.write(line[2:] + "\n")
        elif line.startswith("base "):
            lay_out(line.removeprefix("base "), root)
        elif line.startswith("absent "):
            _remove(root / line.removeprefix("absent /"))
        elif " -> " in line:
            path, target = line.split(" -> ")
            _get_at(root, path).symlink_to(target)
        elif line.endswith(" <<"):
            current = _get_at(root, line.removesuffix(" <<"))
            current.write_text("")
        elif line and not line.startswith("#"):
            path, mark, text = line.partition(" =")
            assert mark, line
            _get_at(root, path).write_text(text.removeprefix(" ") + "\n")
    return root


def names(below: str = "") -> list[str]:
    """Return the trees of a folder."""
    return sorted(f"{below}{path.stem}" for path in (DATA / below).glob("*.tree"))


def _get_at(root: pathlib.Path, path: str) -> pathlib.Path:
    assert path.startswith("/"), path
    place = root / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
