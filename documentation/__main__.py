"""`python -m documentation` updates the generated parts of docs/. `make docs` runs it."""

import sys

from documentation import content


def main() -> int:
    """Write each outdated file and print its name."""
    for path, text in content.list_outdated_files().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(content.DOCS.parent)}")  # noqa: T201 - a command line prints
    return 0


if __name__ == "__main__":
    sys.exit(main())
