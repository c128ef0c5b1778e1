"""The version of railwright: the one place where it is written.

pyproject.toml reads it here for the package, manifests/charting/build.py for the chart; images are tagged with it.
"""

VERSION = "0.1.0"
