"""Starts a server process: raises limits, logs the settings, runs the main coroutine, and reports a failed start."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from railwright.serving import listeners, settings, tls, tuning

_LOG = logging.getLogger(__name__)

Main = Callable[[], Coroutine[Any, Any, int]]
"""The main coroutine of a server. It builds its parts inside the running loop and returns the exit code."""


def start(options: settings.Settings, main: Main) -> int:
    """Run `main` in an event loop of its own. Return the exit code: 1 if the server cannot start, which is logged."""
    tuning.raise_limits()
    _LOG.info("starting", extra={"fields": settings.describe(options)})
    try:
        with asyncio.Runner(loop_factory=tuning.find_loop_factory()) as runner:
            return runner.run(main())
    except (listeners.ListenError, tls.CertificateError) as error:
        _LOG.critical("cannot start", extra={"fields": {"reason": str(error)}})
        return 1
