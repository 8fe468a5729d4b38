"""One thread a process: two processes run the tests, and more threads would wait."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
