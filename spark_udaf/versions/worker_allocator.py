"""The setting of Arrow's memory allocator (mimalloc) in Spark's Python workers. It is made when this module is
imported.
"""

from __future__ import annotations

import os

TUNE_VARIABLE = "TILTFRAME_TUNE_WORKERS"
_PURGE_DELAY = "MIMALLOC_PURGE_DELAY"
_PURGE_DELAY_MILLISECONDS = "10000"
# Spark passes variables with this prefix to the process of a worker, or to the daemon from which workers are forked.
_WORKER_PREFIX = "PYTHON_WORKER_FACTORY_"


def keep_memory_freed_by_arrow() -> None:
    """In a Python worker of Spark, let Arrow's allocator keep freed memory for ten seconds. Elsewhere, do nothing.

    By default, the allocator returns memory to the operating system a second after it was freed. Getting it again takes
    a twentieth of the processor time of a task that reads files, and a fifth on a busy machine, on which more tables
    are older than a second. The allocator reads its setting from the environment when pyarrow is loaded, so this
    function must be called before pyarrow is imported, and has no effect afterwards. An environment variable that is
    already set is not changed.
    """
    is_worker = any(name.startswith(_WORKER_PREFIX) for name in os.environ)
    if is_worker and os.environ.get(TUNE_VARIABLE) != "0":
        os.environ.setdefault(_PURGE_DELAY, _PURGE_DELAY_MILLISECONDS)


keep_memory_freed_by_arrow()
