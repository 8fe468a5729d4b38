"""Time and memory of tables larger than memory: Adult, drawn with replacement.

    python benchmarks/scale.py --rows 1e5 1e6 1e7 5e7 --folder /tmp
    python benchmarks/scale.py --rows 1e6 --processes 1 2 --times 3

Of every size a Parquet file is written, fitted with the defaults and the levels and
bounds of Adult's code book, and as many rows are sampled to another file; each in a
process of its own, whose peak of resident memory is read at its end. Files are deleted.
Records are added to ``results/scale.jsonl``, and all of them tabulated in
``results/scale.md``.

With ``--processes`` the file is fitted by that many processes together, of one thread
each, the numbers named in turns. A record has the seconds of the slowest process, and
the processor seconds of each: of the whole fit, and of its noisy steps. They go to
``results/processes.jsonl`` and ``results/processes.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loaders import fetch_adult
from records import append, machine, markdown_table, read
from tabular import public_schema
from torch import distributed, set_num_threads

from dpgenerative import DPHFlowSynthesizer, load
from dpgenerative.fitting.fit import PrivateFit

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
"""Rows that are drawn at a time."""
GROUP = 2**17
"""Rows of a row group, at most."""
TOGETHER = """\
Processor seconds are what a fit would take on idle processors, but for the time in
which one process waits for another; seconds count what other jobs took of both cores.
Every process repeats the calibration of the noise, and drawing rows from the model and
correcting it on them after the last step."""


def write(path: Path, n: int) -> None:
    """Write n rows of Adult, drawn with replacement."""
    adult = pa.Table.from_pandas(fetch_adult().train, preserve_index=False)
    adult = adult.replace_schema_metadata(None)
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, adult.schema) as writer:
        for start in range(0, n, PART):
            rows = rng.integers(0, len(adult), min(PART, n - start))
            writer.write_table(adult.take(rows), GROUP)


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
    return {**record, **circumstances()}


def part_of_a_fit(source: Path, stated: dict[str, Any]) -> dict[str, Any]:
    """Fit as one of the processes that the environment names."""
    schema, train, spent = public_schema(fetch_adult().train), PrivateFit.train, []

    def timed(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        gradient = train(*args, **options)
        spent.append(time.process_time() - start)
        return gradient

    PrivateFit.train = timed  # type: ignore[method-assign]
    set_num_threads(1)
    if int(os.environ["WORLD_SIZE"]) > 1:
        distributed.init_process_group("gloo")
    starts = time.perf_counter(), time.process_time()
    made = DPHFlowSynthesizer(schema=schema, random_state=0, **stated).fit(source)
    return {
        "seconds": round(time.perf_counter() - starts[0], 1),
        "processor": round(time.process_time() - starts[1], 1),
        "steps": round(spent[0], 1),
        "n_steps": made.n_steps_,
        "batch_size": round(made.privacy_.plan.batch_size),
    }


def together(n: int, source: Path, size: int, stated: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a fit by several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "--work", "part", str(source)]
    running = [
        subprocess.Popen(
            [*command, json.dumps(stated)],
            env={**os.environ, **place, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Linux shares processors out among sessions
        )
        for rank in range(size)
    ]
    parts = [json.loads(process.communicate()[0]) for process in running]
    return {
        "rows": n,
        "processes": size,
        **{name: parts[0][name] for name in ("batch_size", "n_steps")},
        "seconds": max(part["seconds"] for part in parts),
        **{name: [part[name] for part in parts] for name in ("processor", "steps")},
        **circumstances(),
    }


def compared(n: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records of one size, numbers of processes in turns."""
    given = {name: getattr(options, name) for name in ("batch_size", "n_steps")}
    stated = {name: value for name, value in given.items() if value is not None}
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        source = Path(place, "a.parquet")
        write(source, n)
        for _, size in product(range(options.times), options.processes):
            yield together(n, source, size, stated)


def circumstances() -> dict[str, str]:
    """Return when, where and of what code a record is."""
    revision = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(revision, check=True, capture_output=True, text=True)
    return {
        "date": str(dt.date.today()),
        "machine": machine(),
        "revision": found.stdout.strip(),
    }


def summary_of_processes(records: list[dict[str, Any]]) -> str:
    """Return all records of fits by several processes as a page: means by fit."""
    names = ["rows", "batch_size", "n_steps", "processes", "date", "revision"]
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in records:
        found.setdefault(tuple(each[name] for name in names), []).append(each)
    rows = []
    for key, group in sorted(found.items(), key=lambda pair: (*pair[0][4:], pair[0])):
        times = [[each["seconds"] for each in group]]
        times += [[max(each[x]) for each in group] for x in ("processor", "steps")]
        means = [f"{np.mean(x):.1f} ({min(x):.1f} to {max(x):.1f})" for x in times]
        of = f"{key[4]}, {key[5]}"
        rows.append([f"{key[0]:.0e}", *map(str, key[1:4]), str(len(group)), *means, of])
    head = ["rows", "batch", "steps", "processes", "fits", "seconds"]
    head += ["processor, s", "of which steps, s", "of"]
    told = (__doc__ or "").split("\n\n")[3].strip()
    lines = [
        "# Fits by several processes",
        "",
        told,
        "",
        *markdown_table(head, rows),
        "",
    ]
    lines += [
        "Means (least to most) of the slowest or busiest process.",
        "",
        TOGETHER,
        "",
    ]
    lines += ["Machines: " + "; ".join(sorted({each["machine"] for each in records}))]
    return "\n".join(lines) + "\n"


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
    parser.add_argument("--processes", type=int, nargs="+", default=[])
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--n-steps", type=int)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        what, source, target = options.work
        if what == "part":
            record = part_of_a_fit(Path(source), json.loads(target))
        else:
            record = work(what, Path(source), Path(target), int(options.rows[0]))
        sys.stdout.write(json.dumps(record))
        return
    sizes = map(int, options.rows)
    if options.processes:
        found = (record for n in sizes for record in compared(n, options))
        keep(RESULTS / "processes.jsonl", found, summary_of_processes)
    else:
        found = (measured(n, options.folder) for n in sizes)
        keep(RESULTS / "scale.jsonl", found, summary)


def keep(
    path: Path,
    found: Iterator[dict[str, Any]],
    page: Callable[[list[dict[str, Any]]], str],
) -> None:
    """Add records to a file as they come, and tabulate all of them beside it."""
    for record in found:
        append(path, record)
    path.with_suffix(".md").write_text(page(read(path)))


if __name__ == "__main__":
    main()
