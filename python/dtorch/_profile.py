"""Profiles: what ran when, in which thread, for whom, as a Chrome trace; for dtorch.profile."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from types import TracebackType
from typing import BinaryIO

from . import _C
from ._async import drain

_active: profile | None = None


class profile:
    """Records everything that dtorch does, and writes it as a Chrome trace.

    ::

        with dtorch.profile("trace.json"):
            asyncio.run(main())

    The file opens in https://ui.perfetto.dev and in chrome://tracing. It has a track for each
    thread that called ops, for the controller and for each worker. A call is a slice in its
    client's track, with the user's line (``site``) and the asyncio task (``coroutine``) as
    arguments; arrows lead from it to the run in a worker, and on to the moment when the loop (or a
    blocked thread) took notice. The time that a task waited for a worker is a span under the
    controller; tasks that were computed in one pass over memory are one slice that lists them as
    ``members``. Times are in us, bytes are those of all operands.

    ``start()`` and ``stop()`` do what entering and leaving do; ``async with`` awaits what a plain
    ``with`` would block on. One profile at a time: the whole process is recorded. It costs one
    or two microseconds for each op; when none is recorded, next to nothing.

    Leaving waits, at most ``timeout`` seconds, until what was submitted has ended; not so inside a
    running loop, which it would stop: there, tasks still under way are left out of the trace and
    counted in its ``otherData`` as ``unfinished``. The file is written also when the block raises.

    Args:
        path: the file to write; it is made, or emptied, at the start.
        max_records: how much is kept (one op makes 1 to 4 records of 80 bytes); what comes later is
            dropped, and counted in ``otherData``.
        timeout: seconds to wait for the rest at the end; None: for ever.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_records: int = 8_000_000,
        timeout: float | None = 10.0,
    ) -> None:
        self.path = os.fspath(path)
        if not isinstance(self.path, (str, bytes)):
            raise TypeError(f"profile(): path must be a str or os.PathLike, not {path!r}")
        if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
            raise ValueError(f"profile(): max_records must be an int >= 1, not {max_records!r}")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"profile(): timeout must be a number >= 0 or None, not {timeout!r}")
        self._max_records = max_records
        self._timeout = timeout
        self._file: BinaryIO | None = None
        self._pid = 0

    def __repr__(self) -> str:
        return f"<dtorch.profile {self.path!r}{' recording' if self._file is not None else ''}>"

    def start(self) -> profile:
        """Opens the file and begins to record. RuntimeError while a profile is being recorded."""
        global _active
        if _active is not None and _active._pid == os.getpid():
            raise RuntimeError(
                f"profile(): a profile is being recorded already, to {_active.path!r}: "
                "there is one at a time, since it records the whole process"
            )
        file = open(self.path, "wb", buffering=0)
        try:
            _C._trace_start(self._max_records)
        except BaseException:
            file.close()
            raise
        self._file, self._pid = file, os.getpid()
        _active = self
        atexit.register(self._stop_at_exit)
        return self

    def stop(self) -> None:
        """Ends the recording and writes the file. RuntimeError when it has not been started."""
        file = self._take()
        try:
            if not _in_running_loop():
                with contextlib.suppress(TimeoutError):
                    _C._drain().get(self._timeout)
        finally:
            self._finish(file)

    def _take(self) -> BinaryIO:
        """The open file, once."""
        file = self._file
        if file is None:
            raise RuntimeError("profile(): stop() without start()")
        if self._pid != os.getpid():  # the parent's profile
            raise RuntimeError("profile(): it is recorded in the parent process of this fork")
        self._file = None
        return file

    def _finish(self, file: BinaryIO) -> None:
        global _active
        try:
            _C._trace_stop()
            with file:
                _C._trace_write(file)
        finally:
            _C._trace_clear()
            _active = None
            atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        if self._file is not None and self._pid == os.getpid():
            self._finish(self._take())

    def __enter__(self) -> profile:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pid == os.getpid():  # not in a child forked inside the block
            self.stop()

    async def __aenter__(self) -> profile:
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        file = self._take()
        try:
            await drain(self._timeout)
        finally:
            self._finish(file)


def _in_running_loop() -> bool:
    return asyncio._get_running_loop() is not None
