"""`python -m railwright.documentation`: write the generated parts of docs/ anew; `make docs` runs it."""

import sys

from railwright.documentation import content


def main() -> int:
    """Write what is stale and name it."""
    for path in content.stale():
        text = dict(content.files())[path]
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(content.DOCS.parent)}")  # noqa: T201 - a command line prints
    return 0


if __name__ == "__main__":
    sys.exit(main())
