"""Work in several processes."""

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from bace_env.errors import BaceError


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that leave Ctrl-C to this one; none for one worker, whose work is done here.

    Raises:
        BaceError: A process died.
    """
    if workers == 1:
        yield None
        return
    try:
        with ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        ) as pool:
            # Started at once, and deaf to Ctrl-C while they still import, too: a mask is inherited.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                for _ in range(workers):
                    pool.submit(int)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield pool
    except BrokenProcessPool:
        raise BaceError("a worker process died; was there enough memory?") from None
