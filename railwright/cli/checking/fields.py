"""Reads fields of objects that are plain JSON trees, whatever they contain."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railwright.fabric import label_selectors
from railwright.fabric.workloads import frameworks


def find_named(objects_read: Iterable[Any], name: str = "") -> Any | None:
    """Return the first object, or the first of this name; None if there is none."""
    return next((item for item in objects_read if name in ("", get_path(item, "metadata", "name"))), None)


def get_path(tree: Any, *path: str) -> Any:
    """Return the value under these keys, None if a key is missing or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


get_map = frameworks.get_mapping


def get_list(tree: Any, *path: str) -> Sequence[Any]:
    """Return the list under these keys, an empty one if there is none."""
    value = get_path(tree, *path)
    return value if isinstance(value, list) else ()


def get_name(obj: Any) -> str:
    """Return NAMESPACE/NAME, or NAME for an object without namespace."""
    metadata = get_path(obj, "metadata")
    return "/".join(filter(None, (get_path(metadata, "namespace"), get_path(metadata, "name"))))


def read_selector(tree: Any) -> Sequence[label_selectors.Expression]:
    """Return the expressions of a label selector, with one for each of its matchLabels."""
    expressions = [
        (str(item.get("key")), str(item.get("operator")), tuple(sorted(item.get("values") or ())))
        for item in get_list(tree, "matchExpressions")
    ]
    labels = [(key, "In", (value,)) for key, value in get_map(tree, "matchLabels").items()]
    return [label_selectors.Expression(*expression) for expression in (*expressions, *labels)]


def list_containers(deployment: Any) -> Sequence[Any]:
    """Return the containers of a Deployment."""
    return get_list(deployment, "spec", "template", "spec", "containers")


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of all containers of a Deployment; the value of one without is ""."""
    arguments = [argument for container in list_containers(deployment) for argument in get_list(container, "args")]
    return dict(argument.partition("=")[::2] for argument in arguments)


_TAG = re.compile(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$")


def list_image_versions(deployment: Any) -> Mapping[str, str]:
    """Return the images of a Deployment with the version in their tag, "" if the tag names none, such as `latest`."""
    images = [str(get_path(container, "image") or "") for container in list_containers(deployment)]
    return {image: match[1] if (match := _TAG.search(image)) else "" for image in images if image}
