"""A bar over all runs of a study, on stderr so that the answer stays alone on stdout."""

import contextlib
from collections.abc import Callable, Iterator

from rich import console, progress

_EVERY = 50  # jobs between two looks at the screen


@contextlib.contextmanager
def shown(jobs: int, runs: int, *, quiet: bool) -> Iterator[Callable[[int, str], Callable[[int], None]]]:
    """Yields what gives, for the number and name of a run, whom to tell how many of its jobs are placed."""
    columns = (
        progress.TextColumn("{task.description:>10}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
    )
    screen = console.Console(stderr=True)
    with progress.Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task("", total=jobs * runs)

        def of_run(number: int, name: str) -> Callable[[int], None]:
            def tell(placed: int) -> None:
                if placed % _EVERY == 0:
                    bar.update(task, completed=number * jobs + placed, description=name)

            return tell

        yield of_run
