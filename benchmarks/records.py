"""Records of runs, a line of JSON each, where they were made, and tables of them."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a results file; none when it does not exist."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def append(path: Path, record: dict[str, Any], **options: Any) -> None:
    """Add a record to a results file; options are those of `json.dumps`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, **options) + "\n")


def origin() -> dict[str, str]:
    """Return where, of what code and when a record is made."""
    return {
        "machine": machine(),
        "revision": revision(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine() -> str:
    """Describe the processor, the system and the versions that set the speed."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        names = [line.split(":")[1].strip() for line in lines if "model name" in line]
        processor = names[0] if names else processor
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "scikit-learn")
    )
    python = f"Python {platform.python_version()}"
    return f"{processor} x {cpu_count()}, {platform.system()}, {python}, {packages}"


def revision() -> str:
    """Return the abbreviated commit that the scripts belong to."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def markdown_table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Return the lines of a table, and an empty one."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]
