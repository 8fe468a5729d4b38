"""Time and memory of tables larger than memory: Adult, drawn with replacement.

    python benchmarks/scale.py --rows 1e5 1e6 1e7 5e7 --folder /tmp

Of every size a Parquet file is written, fitted with the defaults and the levels and
bounds of Adult's code book, and as many rows are sampled to another file; each in a
process of its own, whose peak of resident memory is read at its end. Files are deleted.
Records are added to ``results/scale.jsonl``, and all of them tabulated in
``results/scale.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loaders import fetch_adult
from tabular import machine, markdown_table, public_schema

from dpgenerative import DPHFlowSynthesizer, load

RESULTS = Path(__file__).parent / "results"
EXPLAINED = """\
A fit is a linear part (marginals, codes, counted tables) and a constant one
(calibration, at most 800 steps on batches of 2,048 rows, correction of the model on
drawn rows). The constant part changes with the rules, which take wider networks and
finer functions where rows tell more, the last time between one and ten million rows.
Resident memory counts the codes, one byte a cell, though the system can drop their
pages; a sample needs one part of 65,536 rows. Other jobs shared both cores, so that
times are upper bounds."""
PART = 10**6
"""Rows that are drawn at a time, and rows of a row group."""


def write(path: Path, n: int) -> None:
    """Write n rows of Adult, drawn with replacement."""
    adult = pa.Table.from_pandas(fetch_adult().train, preserve_index=False)
    adult = adult.replace_schema_metadata(None)
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, adult.schema) as writer:
        for start in range(0, n, PART):
            rows = rng.integers(0, len(adult), min(PART, n - start))
            writer.write_table(adult.take(rows))


def work(what: str, source: Path, target: Path, n: int) -> dict[str, Any]:
    """Fit or sample; return seconds and the peak of memory, in MiB."""
    schema = public_schema(fetch_adult().train)
    start = time.perf_counter()
    if what == "fit":
        DPHFlowSynthesizer(schema=schema, random_state=0).fit(source).save(target)
    else:
        load(source).sample_to(target, n, random_state=0)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(seconds, 1), "peak": round(peak)}


def measured(n: int, folder: Path) -> dict[str, Any]:
    """Return the record of one size."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        data, model, out = (Path(place, x) for x in ("a.parquet", "m.dpg", "b.parquet"))
        write(data, n)
        record: dict[str, Any] = {"rows": n, "data": round(data.stat().st_size / 2**20)}
        for what, source, target in (("fit", data, model), ("sample", model, out)):
            command = [sys.executable, __file__, "--work", what, str(source)]
            command += [str(target), "--rows", str(n)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            record[what] = json.loads(done.stdout)
    revision = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(revision, check=True, capture_output=True, text=True)
    return {
        **record,
        "date": str(dt.date.today()),
        "machine": machine(),
        "revision": found.stdout.strip(),
    }


def summary(records: list[dict[str, Any]]) -> str:
    """Return all records as a page."""
    head = ["rows", "file, MiB", "fit, s", "peak, MiB", "sample, s", "peak, MiB", "of"]
    rows = [
        [
            f"{each['rows']:.0e}", str(each["data"]),
            *(str(each[w][x]) for w in ("fit", "sample") for x in ("seconds", "peak")),
            f"{each['date']}, {each['revision']}",
        ]
        for each in records
    ]  # fmt: skip
    told = (__doc__ or "").split("\n\n")[2].strip()
    lines = ["# Tables larger than memory", "", told, ""]
    lines += [*markdown_table(head, rows), ""]
    lines += [EXPLAINED, ""]
    lines += ["Machines: " + "; ".join(sorted({each["machine"] for each in records}))]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7, 5e7])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        what, source, target = options.work
        n = int(options.rows[0])
        sys.stdout.write(json.dumps(work(what, Path(source), Path(target), n)))
        return
    path = RESULTS / "scale.jsonl"
    for n in map(int, options.rows):
        with path.open("a") as file:
            file.write(json.dumps(measured(n, options.folder)) + "\n")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    (RESULTS / "scale.md").write_text(summary(records))


if __name__ == "__main__":
    main()
