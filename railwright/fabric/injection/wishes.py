"""Old names of `user_options`, for packages that still import them."""

from railwright.fabric.injection.user_options import UserOptions as Wishes
from railwright.fabric.injection.user_options import read

__all__ = ["Wishes", "read"]
