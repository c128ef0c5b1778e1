"""The version of railwright. The package, the chart and the tags of images use it."""

VERSION = "0.1.0"
