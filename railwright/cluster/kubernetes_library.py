"""Import kubernetes_asyncio's reader of kubeconfigs without the library's model classes.

`import kubernetes_asyncio` imports a class for every kind of the API: about 850 modules, 68 MiB and one to three
seconds of CPU at the start of each server and command. Reading an account needs `kubernetes_asyncio.config` and the
class `kubernetes_asyncio.client.Configuration`, about 15 modules. `import_config` registers the library's packages
without running their `__init__` files, then imports `kubernetes_asyncio.config`, whose own code runs unchanged.
urllib3 is imported when the library uses it, which is only for accounts with a password.
"""

import contextlib
import importlib
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

_LIBRARY = "kubernetes_asyncio"
# What other modules of the library import from a package's __init__: name to the module that defines it.
_NAMES: Mapping[str, Mapping[str, str]] = {
    _LIBRARY: {},
    f"{_LIBRARY}.client": {
        "ApiClient": __name__,
        "Configuration": f"{_LIBRARY}.client.configuration",
    },
}
_LAZY = "urllib3"  # imported by Configuration, which uses one function of it


class ApiClient:
    """Take the place of the library's client, which `config` imports, and creates in functions that we do not call."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise NotImplementedError(f"{_LIBRARY} was imported without its client; import {_LIBRARY} first")


def import_config() -> None:
    """Import `kubernetes_asyncio.config` and `kubernetes_asyncio.client.configuration` without the model classes.

    Does nothing when the library is imported already. When a release of the library is built otherwise, the packages
    registered here are removed again, so that a plain import works, at its price.
    """
    logging.getLogger(_LIBRARY).setLevel(logging.CRITICAL)  # it logs what it raises, and our errors say more
    if _LIBRARY in sys.modules:
        return
    try:
        for package, names in _NAMES.items():
            _register(package, names)
        with _defer_import(_LAZY):
            importlib.import_module(f"{_LIBRARY}.client.configuration")
        importlib.import_module(f"{_LIBRARY}.config")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name == _LIBRARY or name.startswith(f"{_LIBRARY}.")]:
            del sys.modules[name]


def _register(package: str, names: Mapping[str, str]) -> None:
    """Make the package known to the import system without running its `__init__`; its names are imported on demand."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ImportError(f"no package {package}")
    module = importlib.util.module_from_spec(spec)

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name]), name)

    vars(module)["__getattr__"] = find
    sys.modules[package] = module
    parent, _, name = package.rpartition(".")
    with contextlib.suppress(KeyError):  # the library itself has no parent
        setattr(sys.modules[parent], name, module)


@contextlib.contextmanager
def _defer_import(name: str) -> Iterator[None]:
    """Let modules that are imported meanwhile have a stand-in for a library, which imports it when it is used."""
    if name in sys.modules:
        yield
        return
    module = types.ModuleType(name)
    vars(module)["__getattr__"] = lambda attribute: getattr(importlib.import_module(name), attribute)
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]  # other modules import the library itself
