"""A server gives freed memory back: the allocators of its libraries keep none, and glibc's is released."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiltframe.serve.freed_memory import release_freed_memory

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


@ON_LINUX
def test_freed_memory_is_released():
    release_freed_memory()
    before = resident_bytes()
    blocks = [bytearray(5000) for _ in range(40_000)]
    last = blocks[-1]  # its address is above all others, so that glibc cannot shrink the heap by itself
    del blocks
    assert resident_bytes() > before + 10**8
    release_freed_memory()
    assert resident_bytes() < before + 5 * 10**7
    assert len(last) == 5000


@pytest.mark.parametrize(("command", "uses_system"), [("serve", True), ("stream", True), ("query", False)])
def test_the_settings_of_a_command(command, uses_system):
    """A long command gives freed memory back, and another one keeps it. Both collect garbage."""
    script = (
        "from tiltframe_command import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    import gc, os, pyarrow\n"
        "    print(pyarrow.default_memory_pool().backend_name, os.environ.get('_RJEM_MALLOC_CONF'),\n"
        "          os.environ.get('MIMALLOC_PURGE_DELAY'), gc.isenabled())\n"
    )
    environment = {**os.environ}
    for name in ("ARROW_DEFAULT_MEMORY_POOL", "_RJEM_MALLOC_CONF", "MIMALLOC_PURGE_DELAY"):
        environment.pop(name, None)
    arguments = [sys.executable, "-c", script, command, "--help"]
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    last_line = result.stdout.splitlines()[-1]
    if uses_system:
        assert last_line == "system dirty_decay_ms:0 None True", result.stdout
    else:
        assert not last_line.startswith("system"), result.stdout
        assert last_line.endswith(" None -1 True"), result.stdout
