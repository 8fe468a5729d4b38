"""What the three papers print, and how our records stand beside it.

One function per table or figure, which ``reproduce.py`` lists, makes and prints. Each
yields lines: what is compared, what is published, ours, and a verdict, which is
computed. Of the papers only what is known here is compared.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sparsity
import torch
from records import read
from tabular import TASKS
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.accounting import (
    GaussianRelease,
    classical_epsilon,
    epsilon_of,
    gaussian_epsilon,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.sampling import capacity
from dpgenerative.study.framework import _with_phi

RESULTS = Path(__file__).parent / "results"
OWN = RESULTS / "reproduce.jsonl"
ABLATION = RESULTS / "reproduce_ablation.jsonl"
NOT_KNOWN = "not in our material"
SUMMARIES = ("peers", "nist", "attacks")
KENDALL = {"kendall_rmse": "RMSE", "kendall_mae": "MAE"}
SCORES = {"macro_f1": "macro-F1", "auroc": "AUROC", "average_precision": "AP"}
PUBLISHED = {
    "adult": {"macro_f1": 0.56, "auroc": 0.75, "average_precision": 0.50},
    "census": {"macro_f1": 0.52, "auroc": 0.78, "average_precision": 0.17},
    "covertype": {"macro_f1": 0.22, "kendall_rmse": 0.072},
    "intrusion": {},
}
Line = tuple[str, str, str, str]  # what, published, ours, verdict

# Records ------------------------------------------------------------------------------


def scores(dataset: str, estimator: str, **more: Any) -> dict[str, Any] | None:
    """Return mean scores of private fits at epsilon 1, or None without any."""
    wanted = {"epsilon": 1.0, "delta": 1e-5, **more}
    found = [
        r
        for path in (RESULTS / "tabular.jsonl", OWN)
        for r in read(path)
        if r.get("dataset") == dataset
        and r.get("mode") == "private"
        and r.get("estimator", "flow") == estimator
        and (r["params"] == wanted or (estimator == "published" and not more))
    ]
    if not found:
        return None
    longest = max(found, key=steps_of)
    alike = [r for r in found if r["params"] == longest["params"]]
    mean = pd.DataFrame([r["metrics"] for r in alike]).mean(numeric_only=True)
    return {**mean, "n": len(alike), "steps": steps_of(longest)}


def steps_of(record: dict[str, Any]) -> int:
    """Return the number of gradient steps of a fit."""
    return record["privacy"]["plan"]["n_steps"]


def figure(value: float) -> str:
    """Write a figure without its leading zero."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}")


def described(found: dict[str, Any] | None, names: Iterable[str]) -> str:
    """Return the scores of a model, with what was run."""
    if found is None:
        return "not run"
    numbers = ", ".join(figure(found[name]) for name in names)
    seeds = "1 fit" if found["n"] == 1 else f"{found['n']} fits"
    return f"{numbers} ({seeds}, {found['steps']} steps)"


def compared(found: dict[str, Any] | None, told: dict[str, float]) -> str:
    """Count the published figures that a model is ahead of."""
    if found is None:
        return "not run"
    lower = {"kendall_rmse", "kendall_mae"}
    ahead = sum(
        (found[k] < v) if k in lower else (found[k] > v) for k, v in told.items()
    )
    return f"ahead in {ahead} of {len(told)}"


def verdict(dataset: str, names: Iterable[str]) -> str:
    """Compare the default and the published setup with the published figures."""
    told = {k: v for k, v in PUBLISHED[dataset].items() if k in names}
    if not told:
        return "not judged: " + NOT_KNOWN
    default, setup = scores(dataset, "flow"), scores(dataset, "published")
    said = f"default {compared(default, told)}"
    if setup is None:
        return said + "; published setup not run"
    gap = max(abs(setup[k] - v) for k, v in told.items())
    return f"{said}; published setup within {figure(gap)}"


# DP-HFlow ----------------------------------------------------------------------------


def tables_of(names: dict[str, str]) -> Callable[[], Iterable[Line]]:
    """Return a line per data set: the default beside the published setup."""

    def lines() -> Iterable[Line]:
        for dataset in TASKS:
            told = {k: v for k, v in PUBLISHED[dataset].items() if k in names}
            published = ", ".join(f"{names[k]} {figure(v)}" for k, v in told.items())
            ours = [
                f"{label} {described(scores(dataset, estimator), names)}"
                for label, estimator in (
                    ("default", "flow"),
                    ("published setup", "published"),
                )
            ]
            what = f"{dataset}: {', '.join(names.values())}"
            yield what, published or NOT_KNOWN, "; ".join(ours), verdict(dataset, names)

    return lines


def toy_lines() -> Iterable[Line]:
    """Return a line per toy density."""
    for name in ("checkerboard", "two spirals", "pinwheel"):
        runs = [r for r in read(OWN) if r.get("density") == name]
        yield from pictured(name, "points, 2-way distance", runs)


def marginal_lines() -> Iterable[Line]:
    """Return the line of the marginals side by side."""
    runs = [r for r in read(OWN) if r.get("part") == "marginals"]
    yield from pictured("adult", "rows, 1-way distance", runs)


def pictured(name: str, what: str, runs: list[dict[str, Any]]) -> Iterable[Line]:
    """Return the line of a picture: the distance of each model from the rows."""
    if not runs:
        return
    found = {r["model"]: r for r in runs}
    ours = [f"{m} {figure(r['tvd'])} ({r['steps']} steps)" for m, r in found.items()]
    ours.append(f"resampled rows {figure(runs[-1]['floor'])}")
    best = min(found, key=lambda model: found[model]["tvd"])
    what = f"{name}, {runs[-1]['rows']:,} {what}"
    yield what, "a picture", "; ".join(ours), f"nearest: {best}"


def ablated(part: str) -> pd.DataFrame:
    """Return the records of one part of the ablation, one line per setting."""
    found = [r for r in read(ABLATION) if r["part"] in (part, "default")]
    return pd.DataFrame([r | r["setting"] for r in found])


def clipping_lines() -> Iterable[Line]:
    """Return a line per table: likelihood by clipping, and classifiers on Adult."""
    frame = ablated("clipping")
    for table, rows in frame.groupby("table") if len(frame) else ():
        names = rows["clipping"].fillna("flat") if "clipping" in rows else ["flat"]
        found = dict(zip(names, rows["log_likelihood"], strict=True))
        ours = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        best = max(found, key=found.__getitem__)
        told = "two strategies with 'a better signal-to-noise ratio' (abstract)"
        gain = max(found.get(k, -math.inf) for k in ("per-unit", "sparsified"))
        gain -= found.get("flat", math.nan)
        holds = f"best: {best}; the better of the paper's two {gain:+.2f} beside flat"
        yield f"{table}: log-likelihood", told, ours, holds
    found = {
        name: scores("adult", "flow", **more)
        for name in ("flat", "per-layer", "per-unit", "sparsified")
        for more in [{} if name == "flat" else {"clipping": name}]
    }
    ours = "; ".join(f"{k} {described(v, SCORES)}" for k, v in found.items())
    known = {k: v["auroc"] for k, v in found.items() if v}
    says = "not run"
    if len(known) > 1:
        best, second = sorted(known, key=known.__getitem__)[:-3:-1]
        gap = figure(known[best] - known[second])
        says = f"best AUROC: {best}, {gap} ahead of {second}"
    yield "adult: macro-F1, AUROC, AP", NOT_KNOWN, ours, says


def dequantization_lines() -> Iterable[Line]:
    """Return a line per table: the gain of variational dequantization over epsilon."""
    frame = ablated("dequantization")
    name = "architecture__dequantization"
    frame = frame.dropna(subset=[name]) if name in frame else frame[:0]
    for table, rows in frame.groupby("table") if len(frame) else ():
        pairs = rows.pivot_table("log_likelihood", "epsilon", name).dropna()
        gain = pairs["variational"] - pairs["uniform"]
        ours = ", ".join(
            f"{value:+.2f} at {epsilon:g}" for epsilon, value in gain.items()
        )
        holds = f"variational is ahead at {(gain > 0).sum()} of {len(gain)} epsilons"
        what = f"{table}, two blocks: log-likelihood, variational less uniform"
        yield what, NOT_KNOWN, ours, holds


# PriVAE -------------------------------------------------------------------------------


def noise_lines() -> Iterable[Line]:
    """Measure the noise of a released gradient, by aggregation, at multiplier 1."""
    a, c = sparsity.BOUND / sparsity.BATCH, sparsity.GROUP_BOUND / sparsity.PARTITIONS
    cap, coupled = capacity(sparsity.BATCH), sparsity.COUPLED_BOUND
    kappa = sparsity.KAPPA
    told = {"term-wise": kappa * math.hypot(a, c), "micro": coupled, "batch": math.nan}
    formula = {
        "term-wise": a + 2 * c,
        "micro": (2 * cap - 1) * coupled / sparsity.BATCH,
        "batch": 2 * coupled,
    }
    for name, expected in formula.items():
        found = measured_noise(name)
        held = abs(found / expected - 1) < 0.01
        ours = f"{expected:.3g}, measured {found:.3g}"
        says = "corrected formula holds to 1 %" if held else "FORMULA BROKEN"
        published = NOT_KNOWN
        if told[name] > 0:
            published = f"its formula gives {told[name]:.3g}"
            says += f"; {expected / told[name]:.2f} times the published noise"
        yield f"{name}, noise of the encoder at multiplier 1", published, ours, says


def measured_noise(aggregation: str) -> float:
    """Return the standard deviation of a gradient released from an empty batch."""
    method = "privae+mmd" if aggregation == "term-wise" else aggregation
    run = sparsity.Run(method, None, 0, 0.001, 60_000, 10.0, 8)
    plan = dataclasses.replace(sparsity.make_plan(run), noise_multiplier=1.0)
    encoder, decoder = (MaskedLinear.dense(400, 400) for _ in range(2))
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def objective(rows: Tensor) -> tuple[Tensor, Tensor]:
        latents = encoder(torch.ones(len(rows), 400))
        return decoder(latents).sum(1), latents

    streams = Streams.create(0, "reproducible", "cpu")
    rows = torch.zeros(0, dtype=torch.long)
    out = sparsity.gradient_of(run, plan)(
        model, objective, [(rows, rows.bool())],
        Mechanisms(streams.counts, streams.gradients), streams.draws, torch.mean,
        lambda n: np.zeros(n, int),
    )  # fmt: skip
    return float(out[encoder.weight].double().std())


def sparsity_lines() -> Iterable[Line]:
    """Return a line per rate: what the divergence changes, over epsilon."""
    found = read(RESULTS / "sparsity.jsonl")
    frame = pd.DataFrame(found).fillna({"epsilon": math.inf})
    rates: dict[float, list[tuple[str, bool, bool]]] = {}
    for rate, epsilon, method, other, gaps in sparsity.paired(frame):
        if (method, other) != ("privae+mmd", "privae"):
            continue
        mean, half = gaps.mean(), sparsity.half_interval(gaps)
        cells = [
            f"{label} {mean[k]:+.2g} ({half[k]:.2g})"
            for k, label in (("hoyer", "Hoyer"), ("mmd", "MMD"))
        ]
        sure = mean["hoyer"] > half["hoyer"], -mean["mmd"] > half["mmd"]
        text = f"epsilon {epsilon:g}: {', '.join(cells)}"
        rates.setdefault(rate, []).append((text, *sure))
    for rate, lines in rates.items():
        texts, sparser, nearer = zip(*lines, strict=True)
        told = "PriVAE+MMD sparser, with the smaller MMD"
        says = (
            f"sparser at {sum(sparser)}, smaller MMD at {sum(nearer)} of {len(lines)}"
        )
        yield f"rate {rate:g}", told, "; ".join(texts), says + " epsilons"


def pinwheel_lines() -> Iterable[Line]:
    """Return reconstruction errors with and without the divergence."""
    rows = [
        markdown_cells(line)
        for line in (RESULTS / "pinwheel.md").read_text("utf-8").splitlines()
        if line.startswith(("| 1", "| 0"))
    ]
    for head in dict.fromkeys(row[0] for row in rows):
        texts = {loss: error for h, loss, error in rows if h == head}
        without, with_ = (float(t.split()[0]) for t in texts.values())
        ours = "; ".join(f"{loss} {text}" for loss, text in texts.items())
        ours = ours.replace(" || ", ", ")  # a column of markdown ends at a bar
        told = "latents and reconstructions drawn; " + NOT_KNOWN
        yield (
            f"head of {head}",
            told,
            ours,
            f"error {without / with_:.3g} times smaller",
        )


# Membership inference -----------------------------------------------------------------

VAE_LDP = {  # what is printed at sigma .1; latents; delta, one over the records
    "faces, delta 5.25e-4": (2366.05, 100, 5.25e-4),
    "faces, delta 3.61e-4": (2422.36, 100, 3.61e-4),
    "motion, delta 1.42e-5": (404.9, 2, 1.42e-5),
}
CENTRAL = {  # rows, batch, epochs and delta of the authors' configuration, at z = 1
    "faces": (953, 16, 1000, 1 / 1906),
    "motion": (7042, 32, 100, 1.42e-5),
}
SIZES = {500: "Fashion-MNIST", 80: "Olivetti faces", 300: "MotionSense"}


def epsilon_lines() -> Iterable[Line]:
    """Return the epsilons of Table 2, recomputed."""
    for name, (told, k, delta) in VAE_LDP.items():
        multiplier = 0.1 / (6 * math.sqrt(k))
        usual, exact = (
            formula(multiplier, delta)
            for formula in (classical_epsilon, gaussian_epsilon)
        )
        ours = f"{usual:,.2f} by the same formula; exact {exact:,.0f}"
        same = "reproduced" if abs(usual - told) < 0.06 else "NOT REPRODUCED"
        says = f"{same}; the formula holds below 1 alone, the exact cost is "
        told_ = f"{told:,} at sigma .1"
        yield f"VAE-LDP, {name}", told_, ours, says + f"{exact / told:.0f} times it"
    for name, (n, batch, epochs, delta) in CENTRAL.items():
        release = GaussianRelease(1.0, batch / n, epochs * n // batch)
        ours = f"{epsilon_of([release], delta, 10.0):.2f} by joint accounting at z = 1"
        yield f"central, {name}", NOT_KNOWN, ours, "not judged"


def studies() -> pd.DataFrame:
    """Return the records of the membership study, with the set in each line."""
    frame = pd.DataFrame(
        [line for r in read(RESULTS / "membership.jsonl") for line in r["lines"]]
    )
    return frame.assign(set=frame["n_members"].map(SIZES))


def framework_lines() -> Iterable[Line]:
    """Say which mechanisms of the framework were run."""
    frame = studies()
    ran = frame[["mechanism", "scope"]].drop_duplicates().agg(" ".join, axis=1)
    ran = set(map(str.strip, ran))
    asked = {"no privacy", "central", "VAE-LDP train", "VAE-LDP full"}
    says = "every path was run" if asked <= ran else "NOT ALL PATHS WERE RUN"
    ours = "dpgenerative.study: " + ", ".join(sorted(ran))
    yield "all sets", "a diagram of where noise enters", ours, says


def finding_lines() -> Iterable[Line]:
    """Hold the findings of the paper against medians over seeds."""
    settings = []
    for name, part in studies().groupby("set"):
        rows = _with_phi(part.reset_index(drop=True))
        attack = rows.loc[
            rows["mechanism"] == "no privacy", "average_precision"
        ].median()
        claim = 0.5 if name == "MotionSense" else 1.0
        says = "yes" if abs(attack - claim) <= 0.05 else "no"
        told = f"attacked with an AP near {claim:g} without privacy"
        yield f"{name}: AP", told, figure(attack), f"near: {says}"
        phi = rows.groupby(["mechanism", "scope", "value"])["phi"].median().dropna()
        settings += list(phi)
        central = phi["central"].droplevel(0)
        ours = ", ".join(f"phi {v:.2f} at {e:g}" for e, v in central.items())
        below = f"{(central < 1).sum()} of {len(central)} epsilons"
        told = "accuracy falls faster than the attack (phi below 1)"
        yield f"{name}: central", told, ours, f"holds at {below}"
        best = phi.groupby("mechanism").max().sort_values(ascending=False)
        ours = ", ".join(f"{k} {v:.2f}" for k, v in best.items())
        says = "yes" if best.index[0] == "VAE-LDP" else f"no: {best.index[0]}"
        yield f"{name}: greatest phi", "VAE-LDP has the best", ours, says
    good = sum(value > 1 for value in settings)
    says = "in fewer than half: " + ("yes" if good < len(settings) / 2 else "no")
    told = "'rarely observe favorable privacy-accuracy trade-off' (abstract)"
    yield "all sets", told, f"phi above 1 in {good} of {len(settings)} settings", says


def nothing(told: str, ours: str, says: str) -> Callable[[], Iterable[Line]]:
    """Return the line of what has no figures."""
    return lambda: [("", told, ours, says)]


# Beyond the papers --------------------------------------------------------------------


def beyond() -> Iterable[tuple[str, str, str, str, str]]:
    """Return what other benchmarks ask, from their summaries, and their commands."""
    texts = {k: (RESULTS / f"{k}.md").read_text("utf-8") for k in SUMMARIES}
    told = re.search(r"ahead in (\d+) of (\d+)", texts["peers"])
    count, total = told.groups() if told else ("0", "0")
    yield (
        "Other packages over epsilon", "ahead of each: AUROC, macro-F1, 2-way",
        f"{count} of {total} comparisons", yes(count == total), "``peers.py``",
    )  # fmt: skip
    cells = {c[0]: c for c in map(markdown_cells, texts["nist"].splitlines())}
    names = "DPHFlowSynthesizer", "best private entry of the archive, any epsilon"
    ours, best = (
        [float(c.split()[0]) for c in cells.get(name, [])[1:6]] for name in names
    )
    both = list(zip(cells.get("rows", [])[1:6], ours, best, strict=False))
    won = sum(a > b for _, a, b in both)
    yield (
        "NIST's excerpts, k-marginal", "ahead of the archive's private entries",
        ", ".join(f"{name} {a:.0f} ({b:.0f})" for name, a, b in both),
        f"ahead in {won} of {len(both)} sets", "``nist.py``",
    )  # fmt: skip
    lines = map(markdown_cells, texts["attacks"].splitlines())
    found = [c for c in lines if c[-1].isdigit()]
    finds = sum(float(c[1].split()[0]) >= 0.5 for c in found)
    passed = sum(int(c[-1]) for c in found)
    yield (
        "Attacks", "each finds its planted leak, none passes the cap on ours",
        f"{finds} of {len(found)} find it; {passed} figures beyond the cap",
        yes(finds == len(found) and not passed), "``attacks.py``",
    )  # fmt: skip
    last = max(read(RESULTS / "scale.jsonl"), key=lambda r: r["rows"])
    yield (
        "Size", "rows that do not fit into memory",
        f"{last['rows']:,} rows: fit {last['fit']['seconds']:.0f} s, "
        f"{last['fit']['peak']:,} MiB", "runs", "``scale.py``",
    )  # fmt: skip


def yes(holds: bool) -> str:
    """Say whether all that was asked holds."""
    return "yes" if holds else "not in all"


def markdown_cells(line: str) -> list[str]:
    """Return the cells of a line of a markdown table."""
    return [cell.strip() for cell in line.strip("| ").split(" | ")]
