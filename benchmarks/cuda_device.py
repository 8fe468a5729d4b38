"""What a CUDA device has to show: tests, private steps, fits, memory, processes.

    sh benchmarks/cuda.sh
    python benchmarks/cuda_device.py [--device cpu] [--parts steps adult] [--minutes 8]

Without a device, or with ``--device cpu``, the same code runs with small sizes, and its
records are marked as a try. The parts, each a process that ends with its share of time:

- ``tests``: those marked ``gpu`` (among them sensitivity, and norms within their
  margins), and replays of neighbouring tables by fits on the device;
- ``processes``: sums of `privacy.ranks` over NCCL in a group of one process, and a fit
  in it, which must equal one without a group to the last bit;
- ``adult``: fits of Adult by default, scored as ``tabular.py`` scores them, twice on
  the device (the first one loads kernels) and once on the CPU;
- ``steps``: private steps against plain ones and Opacus' (``step.py``);
- ``images``: the convolutional autoencoder of Fashion-MNIST on the device and on the
  CPU in few steps, and on the device with its default steps, scored by the bound of
  the log-likelihood of test pictures, ten draws each (as ``sparsity.py`` has it).

Each case has the most memory that it added on the device. Its error, if there is one,
is its result and stops no other; the exit code is then 1. Records are added to
``results/cuda.jsonl``, and the last of every part tabulated in ``results/cuda.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda_page
import step
import tabular
import torch
from loaders import fashion_images, fetch_adult
from records import append, origin, read
from torch import Tensor, distributed

from dpgenerative import DPArrayVAESynthesizer, DPHFlowSynthesizer
from dpgenerative.fitting.loop import keep_freed_memory, tensors_of
from dpgenerative.models.networks import ConvDecoder, ConvEncoder
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import ImageVAE
from dpgenerative.privacy.ranks import ProcessGroup

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SHARES = {"tests": 150, "processes": 40, "adult": 70, "steps": 140, "images": 80}
"""Seconds of eight minutes; what a part leaves is the next one's."""
RECORDED = 3
"""Exit code of a part whose errors are in the records."""
REPLAY = "tests/privacy/test_replay.py::test_an_outlier_leaves_no_trace"
SIZES = {
    "cuda": SimpleNamespace(
        tests={
            "marked gpu": ["tests/test_devices.py", "-m", "gpu"],
            "replay": [f"{REPLAY}[{x}]" for x in ("discovered", "tables", "vae")],
        },
        batches=(2048, 16384, 65536), seconds=1.0, rows=None, pictures=None,
        scored=1000, fit={"n_steps": 40, "batch_size": 64},
    ),
    "cpu": SimpleNamespace(
        tests={
            "sensitivity": ["tests/test_devices.py", "-k", "no_row_moves and cpu"],
            "replay": [f"{REPLAY}[per-unit]"],
        },
        batches=(32, 128), seconds=0.2, rows=3000, pictures=2000,
        scored=200, fit={"n_steps": 5, "batch_size": 64},
    ),
}  # fmt: skip
"""Of steps: batches, and seconds of the rounds of each; of fits: rows and pictures."""

Record = dict[str, Any]


def attempt(where: str, facts: Record, work: Callable[[], Record]) -> Record:
    """Return the record of a case: its error, if there was one, and its memory."""
    on_device = where == "cuda"
    if on_device:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    try:
        facts = {**facts, **work()}
    except Exception as error:
        return {**facts, "error": f"{type(error).__name__}: {error}"[:500]}
    if on_device:
        added = torch.cuda.max_memory_allocated() - before
        facts["peak_mib"] = round(added / 2**20, 1)
    return facts


def run_tests(device: str, sizes: Any, stop: float) -> Iterator[Record]:
    for name, words in sizes.tests.items():
        # Tests run in other processes, whose memory is not measured.
        yield attempt("cpu", {"case": name}, partial(passed, words, stop))


def passed(words: list[str], stop: float) -> Record:
    """Return how many tests passed; raise if one failed, or none was run."""
    start = time.monotonic()
    marks = [] if {"-m", "-k"} & {*words} else ["-m", ""]
    command = [sys.executable, "-m", "pytest", "-q", *marks, *words]
    done = subprocess.run(
        command, cwd=ROOT, timeout=stop - start, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    counts = re.findall(r"(\d+) passed", done.stdout)
    if done.returncode or not counts:
        lines = done.stdout.splitlines()
        failed = [x for x in lines if x.startswith(("FAILED", "ERROR"))] or lines[-3:]
        raise RuntimeError("; ".join(failed))
    return {"passed": int(counts[-1]), "seconds": time.monotonic() - start}


def run_processes(device: str, sizes: Any, stop: float) -> Iterator[Record]:
    backend = "nccl" if device == "cuda" else "gloo"
    yield attempt(device, {"case": backend}, partial(in_a_group, device, backend))


def in_a_group(device: str, backend: str) -> Record:
    """Send sums and objects to a group of one; compare a fit there with one alone."""
    rows = fetch_adult().train[:2000]
    model = DPHFlowSynthesizer(
        n_steps=20, random_state=0, noise="reproducible", device=device
    )
    alone = tensors_of(model.fit(rows)._model)
    sums, seconds = torch.randn(65_000, dtype=torch.float64, device=device), []
    with tempfile.TemporaryDirectory() as folder:
        group = f"file://{folder}/group"
        distributed.init_process_group(backend, group, rank=0, world_size=1)
        try:
            # It claims to be of two processes: one alone would send nothing.
            ranks = ProcessGroup(2, 0)
            for _ in range(20):
                start = time.perf_counter()
                is_same = ranks.total([sums])[0].equal(sums)
                seconds.append(time.perf_counter() - start)
                if not is_same:
                    raise ValueError("A sum over one process is not its part.")
            if (ranks.same("sent"), ranks.gathered("sent")[0]) != ("sent", "sent"):
                raise ValueError("An object is not what was sent.")
            together = tensors_of(model.fit(rows)._model)
        finally:
            distributed.destroy_process_group()
    if not all(x.equal(together[name]) for name, x in alone.items()):
        raise ValueError("A fit in a group of one differs from one without a group.")
    return {"sum_ms": 1e3 * statistics.median(seconds)}


def run_adult(device: str, sizes: Any, stop: float) -> Iterator[Record]:
    bunch = fetch_adult()
    bunch.train, bunch.test = bunch.train[: sizes.rows], bunch.test[: sizes.rows]

    def fit(where: str, seed: int) -> Record:
        params = {"epsilon": 1.0, "delta": 1e-5, "device": where}
        config = {"mode": "private", "seed": seed, "params": params}
        made = tabular.run_synthesizer(bunch, config, argparse.Namespace(n_jobs=-1))
        scores = {x: float(made["metrics"][x]) for x in ("tvd_2way", "macro_f1")}
        return {"fit_seconds": made["fit_seconds"], **scores}

    for where, seed in ((device, 0), (device, 1), ("cpu", 0)):
        facts = {"case": "Adult", "where": where, "seed": seed}
        yield attempt(where, facts, partial(fit, where, seed))


def cases(batch: int, device: str) -> dict[str, step.Case]:
    """Return the models of ``step.py``, and a convolutional autoencoder of images."""
    shape, k, generator = (1, 28, 28), 16, torch.Generator().manual_seed(0)
    networks = ConvEncoder(shape, k, generator), ConvDecoder(shape, k, generator)
    vae = ImageVAE(
        *networks, image_shape=shape, two_valued=False, lengths_vary=False,
        latent_dim=k, prior=NormalPrior(k), beta=1.0, head="bernoulli", std=0.1,
    ).to(device)  # fmt: skip
    images = torch.rand(batch, *shape, generator=generator).to(device)
    noise = torch.randn(batch, 1, k, generator=generator).to(device)

    def losses(x: Tensor) -> Tensor:
        return -vae(x, noise[: len(x)])[0]

    name = "Convolutional autoencoder, 28 x 28"
    return {**step.cases(batch, device), name: (vae, losses, images)}


def run_steps(device: str, sizes: Any, stop: float) -> Iterator[Record]:
    for batch in sizes.batches:
        for name, case in cases(batch, device).items():
            kinds = [*step.FAST, "sparsified"]
            for kind in kinds + ["Opacus"] * isinstance(case[0], step.MLP):
                facts = {"case": name, "batch": batch, "step": kind}
                work = partial(timed_step, case, kind, device, sizes.seconds, stop)
                yield attempt(device, facts, work)


def timed_step(
    case: step.Case, kind: str, device: str, seconds: float, stop: float
) -> Record:
    """Return the times of a step and of the plain one, in turns."""
    if time.monotonic() > stop:
        raise TimeoutError("no time was left")
    steps = step.our_steps(*case, [] if kind == "Opacus" else [kind])
    if kind == "Opacus":
        steps[kind] = step.opacus_step(case[2])
    times = step.timed(steps, 1, device)
    n_rounds = int(seconds / sum(each for each, _ in times.values()))
    if n_rounds > 3:
        times = step.timed(steps, min(n_rounds, 50), device)
    (ms, ratio), plain_ms = times[kind], times["plain"][0]
    return {"ms": 1e3 * ms, "plain_ms": 1e3 * plain_ms, "ratio": ratio}


def run_images(device: str, sizes: Any, stop: float) -> Iterator[Record]:
    train = fashion_images("train")[0][: sizes.pictures]
    test = fashion_images("t10k")[0][: sizes.scored]

    def fit(where: str, stated: dict[str, int]) -> Record:
        model = DPArrayVAESynthesizer(1.0, 1e-5, random_state=0, device=where)
        model.set_params(architecture__networks="conv", **stated)
        start = time.perf_counter()
        model.fit(train)
        seconds = time.perf_counter() - start
        score = float(model.score_samples(test, n_draws=10).mean())
        return {"fit_seconds": seconds, "log_likelihood": score}

    fits = [("few steps", device, sizes.fit), ("few steps", "cpu", sizes.fit)]
    if device == "cuda":
        fits.insert(1, ("default steps", device, {}))
    for name, where, stated in fits:
        facts = {"case": f"Fashion-MNIST, {name}", "where": where}
        yield attempt(where, facts, partial(fit, where, stated))


PARTS: dict[str, Callable[[str, Any, float], Iterator[Record]]] = {
    "tests": run_tests, "processes": run_processes, "adult": run_adult,
    "steps": run_steps, "images": run_images,
}  # fmt: skip


def run_part(part: str, device: str, seconds: float, facts: Record) -> int:
    """Run a part in this process; return its exit code."""
    keep_freed_memory()
    warnings.simplefilter("ignore")
    stop, code = time.monotonic() + 0.9 * seconds, 0
    for record in PARTS[part](device, SIZES[device], stop):
        append(RESULTS / "cuda.jsonl", {**facts, "part": part, **record})
        print(part, *(f"{k}={v}" for k, v in record.items()), flush=True)
        code = RECORDED if "error" in record else code
    return code


def run_apart(part: str, device: str, seconds: float, facts: Record) -> bool:
    """Run a part in a process of its own; return whether all of it went well."""
    words = ["--part", part, "--device", device, "--minutes", str(seconds / 60)]
    hidden = {} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    try:
        code = subprocess.run(
            [sys.executable, __file__, *words, "--facts", json.dumps(facts)],
            env={**os.environ, **hidden}, timeout=seconds,
        ).returncode  # fmt: skip
        error = f"ended with exit code {code}"
    except subprocess.TimeoutExpired:
        code, error = 1, f"took more than {seconds:.0f} s"
    if code not in (0, RECORDED):
        print(part, error, flush=True)
        append(RESULTS / "cuda.jsonl", {**facts, "part": part, "error": error})
    return code == 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--facts", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no CUDA device: nothing is measured.")
    if args.part:
        return run_part(args.part, device, 60 * args.minutes, args.facts)
    words = sys.argv[1:] if argv is None else argv
    facts = {
        "run": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device, "is_try": device == "cpu", **origin(),
        "name": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "command": " ".join(["sh benchmarks/cuda.sh", *words]),
    }  # fmt: skip
    start, shared, failed = time.monotonic(), 0.0, []
    for part in args.parts:
        shared += SHARES[part] * args.minutes / 8
        left = start + shared - time.monotonic()
        failed += [] if run_apart(part, device, left, facts) else [part]
    text = cuda_page.page(read(RESULTS / "cuda.jsonl"))
    (RESULTS / "cuda.md").write_text(text, encoding="utf-8")
    print(f"Failed: {failed}" if failed else "No part failed.", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
