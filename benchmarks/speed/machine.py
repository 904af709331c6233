"""The machine of the measurements."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any


def describe(repository: Path) -> dict[str, Any]:
    """The machine by its parts and the commit, without names of hosts and folders."""
    cpu = re.search(r'model name\s*: (.+)', _read('/proc/cpuinfo'))
    memory = re.search(r'MemTotal:\s*(\d+)', _read('/proc/meminfo'))
    system = re.search(r'PRETTY_NAME="(.+)"', _read('/etc/os-release'))
    return {
        'cpu': cpu[1] if cpu else platform.machine(),
        'cores': len(os.sched_getaffinity(0)),
        'memory_gib': round(int(memory[1]) / 2**20) if memory else None,
        'system': f'{system[1] if system else platform.system()}, Linux {platform.release()}',
        'load': os.getloadavg()[0],
        'date': time.strftime('%Y-%m-%d', time.gmtime()),
        'commit': _git(repository, 'rev-parse', '--short', 'HEAD') or 'unknown',
        # A report that is being written changes nothing of what it measures.
        'changed': bool(_git(repository, 'status', '--porcelain', '--untracked-files=no', '--', ':!*RESULTS.md')),
    }


def _read(path: str) -> str:
    return Path(path).read_text(encoding='utf-8') if Path(path).exists() else ''


def _git(repository: Path, *command: str) -> str:
    done = subprocess.run(['git', '-C', str(repository), *command], capture_output=True, text=True)
    return done.stdout.strip()
