"""Old names of `context`, for packages that still import them."""

from railwright.fabric.injection.context import InjectionContext as Aim
from railwright.fabric.injection.context import build as take
from railwright.fabric.injection.context import build_if_opted_in as find

__all__ = ["Aim", "find", "take"]
