"""What Bernau, Robl and Kerschbaum print, beside our records (`papers.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from opacus.accountants.analysis.rdp import compute_rdp
from papers import OWN, RESULTS, Line, figure, verdict
from published import (
    MIA_ACCURACY,
    MIA_ATTACK,
    MIA_CENTRAL,
    MIA_EPOCHS,
    MIA_GENERATED,
    MIA_LOCAL,
    MIA_MULTIPLIERS,
    MIA_NORMS,
    MIA_REAL,
    MIA_RECORDS,
    MIA_SIGMAS,
    MIA_TRAINING,
    MIA_VAE_LDP,
)
from records import read
from scipy.stats import binom

from dpgenerative.privacy.accounting import (
    GaussianRelease,
    classical_epsilon,
    epsilon_of,
    gaussian_epsilon,
)
from dpgenerative.privacy.losses import loss_quadrature
from dpgenerative.study.framework import _with_phi

SIZES = {500: "Fashion-MNIST", 80: "Olivetti faces", 300: "MotionSense"}
IMAGES = "Fashion-MNIST", "Olivetti faces"
NEAR = 0.05
"""Of an average precision."""
SLIGHT = 0.25
"""Part of a classifier's advantage over guessing: less counts as a slight loss."""
STILL = {"sit", "std"}
"""Activities without movement."""
LEAST = 0.04
"""Below this noise multiplier losses overflow, and no lower bound is computed."""
ORDERS = np.array([1 + k / 10 for k in range(1, 100)] + [*range(12, 64)])
"""Those of the tutorials of TensorFlow Privacy, which the authors used."""

# Table 2 ------------------------------------------------------------------------------


def epsilon_lines() -> Iterable[Line]:
    """Return the epsilons of Table 2, recomputed, and the gaps beside them."""
    for name in MIA_CENTRAL:
        yield from central_lines(name)
    for name in MIA_LOCAL:
        yield from local_lines(name)
    for name in MIA_VAE_LDP:
        yield from vae_ldp_lines(name)
    for name in MIA_RECORDS:
        yield gap_line(name)


def central_lines(name: str) -> Iterable[Line]:
    """Return the column CDP of a set: by the same accounting, and what is true."""
    batches, claimed, _ = MIA_CENTRAL[name]
    share = 10 if name == "MotionSense" else 2  # of the records are trained on
    usual, alone, true = [], [], []
    for z, batch in zip(MIA_MULTIPLIERS, batches, strict=True):
        n = MIA_RECORDS[name] // share // batch * batch  # full batches alone
        q, steps = batch / n, MIA_EPOCHS * n // batch
        usual.append(renyi_epsilon(GaussianRelease(z, q, steps), 1 / n))
        alone.append(bounds(GaussianRelease(z, q, steps), 1 / n)[1])
        true.append(bounds(GaussianRelease(z / 2, q, steps), 1 / n))
    same = [abs(a - b) < 0.006 for a, b in zip(claimed, usual, strict=True)]
    published = listed(claimed, "{:,.2f}")
    yield (
        f"CDP, {name}, z {listed(MIA_MULTIPLIERS)}: epsilon", published,
        f"{listed(usual, '{:,.2f}')} by Rényi accounting of every record clipped for "
        f"itself; exact accounting of the same: at most {listed(alone, '{:,.3g}')}",
        verdict(same),
    )  # fmt: skip
    pairs = list(zip(claimed, true, strict=True))
    short = [
        z for z, (t, (low, _)) in zip(MIA_MULTIPLIERS, pairs, strict=True) if t < low
    ]
    least = min(low / t for t, (low, _) in pairs if t < low)
    says = f"contradicted at z {listed(short)}: at least {least:.2g} times as much"
    most = max(t / high for t, (_, high) in pairs)
    says += f"; enough elsewhere, in one place {most:.0f} times too much"
    ranges = "; ".join(
        f"{low:,.3g} to {high:,.3g}" if low else f"at most {high:,.3g}"
        for low, high in true
    )
    norm = plain(f"{MIA_NORMS[name]:g}")
    what = f"CDP, {name}: epsilon, clipped in groups (C {norm}, micro-batches 4)"
    yield what, published, ranges, says


def renyi_epsilon(run: GaussianRelease, delta: float) -> float:
    """Return epsilon as TensorFlow Privacy did: Mironov 2017, Proposition 3."""
    facts = {"q": run.sampling_rate, "noise_multiplier": run.noise_multiplier}
    with np.errstate(all="ignore"):
        curve = compute_rdp(steps=run.steps, orders=list(ORDERS), **facts)
    return float(np.nanmin(curve - math.log(delta) / (ORDERS - 1)))


def bounds(run: GaussianRelease, delta: float) -> tuple[float, float]:
    """Return a lower and an upper bound of the true epsilon of a run.

    The upper one is the least of this package's and that of an adversary who sees which
    steps a record is in: with probability 1 - delta / 2 there are at most k, which are
    one Gaussian mechanism. The lower one: the loss of a removed record is above its
    mean less twice its deviation with probability 4/5 (Cantelli), so that delta one
    below it is at least 4/5 (1 - 1/e).
    """
    q, z, steps = run.sampling_rate, run.noise_multiplier, run.steps
    k = binom.isf(delta / 2, steps, q)
    shown = gaussian_epsilon(z / math.sqrt(k), delta / 2)
    high = min(epsilon_of([run], delta, 100.0), shown)
    if z < LEAST:
        return 0.0, high
    mass, u = loss_quadrature(q, z)
    mass, loss = mass * (1 + u), np.log1p(u)
    mean = float((mass * loss).sum())
    variance = float((mass * loss**2).sum()) - mean**2
    return max(0.0, steps * mean - 2 * math.sqrt(steps * variance) - 1), high


def local_lines(name: str) -> Iterable[Line]:
    """Return the column LDP of a set: a sum over all records, and that of one."""
    each, claimed, _ = MIA_LOCAL[name]
    records = MIA_RECORDS[name]
    parts = 1 if name == "MotionSense" else 3  # channels of a picture
    sums = [parts * records * e for e in each]
    same = [
        math.isclose(a, b, rel_tol=1e-9) for a, b in zip(claimed, sums, strict=True)
    ]
    published = f"{listed(claimed)} at {listed(each)} per feature"
    times = "3 channels times " if parts == 3 else ""
    ours = f"{listed(sums)}: {times}{records:,} records"
    yield f"LDP, {name}: epsilon", published, ours, verdict(same)
    entries = 500 * 12 if name == "MotionSense" else 3  # 10 s at 50 Hz of 12 sensors
    one = [entries * e for e in each]
    ratio = claimed[0] / one[0]
    ours = f"{listed(one)}: {entries:,} features of one record"
    ours += " of 10 s" if entries > 3 else " (channels), neighbours of 64 pixels"
    says = f"contradicted: {ratio:,.4g} times what one record costs"
    yield f"LDP, {name}: epsilon of a record", published, ours, says


def vae_ldp_lines(name: str) -> Iterable[Line]:
    """Return the column VAE-LDP of a set: by the same formula, and what is true."""
    k, claimed, _ = MIA_VAE_LDP[name]
    delta = 1 / MIA_RECORDS[name]
    multipliers = [sigma / (6 * math.sqrt(k)) for sigma in MIA_SIGMAS]
    usual = [classical_epsilon(z, delta) for z in multipliers]
    exact = [gaussian_epsilon(z, delta) for z in multipliers]
    same = [abs(a - b) <= 0.00501 for a, b in zip(claimed, usual, strict=True)]
    what = f"VAE-LDP, {name}, sigma {listed(MIA_SIGMAS)}: epsilon"
    published = listed(claimed)
    yield what, published, listed(usual, "{:,.2f}") + " by its formula", verdict(same)
    short = [s for s, a, b in zip(MIA_SIGMAS, usual, exact, strict=True) if a < b]
    ratio = max(b / a for a, b in zip(usual, exact, strict=True))
    says = f"contradicted at sigma {listed(short)}: up to {ratio:.0f} times as much"
    ours = listed(exact, "{:,.4g}") + " (exact)"
    yield f"VAE-LDP, {name}: true epsilon", published, ours, says


def gap_line(name: str) -> Line:
    """Return the train-test gaps, which our study does not record."""
    gaps = MIA_CENTRAL[name][2], MIA_LOCAL[name][2], MIA_VAE_LDP[name][2]
    central, local, vae = map(listed, gaps)
    claimed = f"without noise and CDP {central}; LDP {local}; VAE-LDP {vae}"
    says = "untested: records of the study have attacks, not losses"
    return (
        f"{name}: train-test gap, from little to much noise",
        claimed,
        "not recorded",
        says,
    )


def listed(values: Iterable[float], form: str = "{:,g}") -> str:
    """Write figures one after the other."""
    return "; ".join(plain(form.format(v)) for v in values)


def plain(text: str) -> str:
    """Write a figure without its leading zero."""
    return text.removeprefix("0") if text.startswith("0.") else text


# Table 1 ------------------------------------------------------------------------------


def classifier_lines() -> Iterable[Line]:
    """Return the accuracies of Table 1, and what they fall and rise with."""
    frame = medians()
    for name, (free, local, vae) in MIA_ACCURACY.items():
        sets = ["MotionSense"] if name == "MotionSense" else list(IMAGES)
        falls = {"LDP": True, "VAE-LDP": name == "MotionSense"}
        for kind, claimed in (("LDP", local), ("VAE-LDP", vae)):
            ours, holds = [], []
            for each in sets:
                study = Study(frame, each)
                values = [study.accuracy, *study.column(kind, "accuracy")[::-1]]
                ours.append(f"{each} {listed(values, '{:.3f}')}")
                holds.append((values[1] > values[-1]) == falls[kind])
            way = "falls" if falls[kind] else "rises"
            yield (
                f"{name}, {kind}: accuracy without noise, with little, ... with much",
                f"{listed([free, *claimed])}: {way} with the noise",
                "; ".join(ours), verdict(holds, "sets"),
            )  # fmt: skip
    ranges = "; ".join(
        f"{k} {low:g} to {high:g}" for k, (low, high) in MIA_TRAINING.items()
    )
    says = "untested: the study's classifier is another, smaller one"
    yield "training of the classifiers", ranges, "``membership.SmallNetwork``", says


# Figures ------------------------------------------------------------------------------


def studies() -> pd.DataFrame:
    """Return the records of the membership study, with the set in each line.

    Under LDP the paper's classifier learns from and is tested on perturbed records,
    and its attack has the true ones: of our two scopes, the accuracy of "full" and the
    attack of "train", whose generators are the same.
    """
    lines = [line for r in read(RESULTS / "membership.jsonl") for line in r["lines"]]
    frame = pd.DataFrame(lines)
    frame["set"] = frame["n_members"].map(SIZES)
    kinds = {"pixels": "LDP", "entries": "LDP"}
    frame["kind"] = frame["mechanism"].replace(kinds)
    names = ["set", "mechanism", "value", "seed"]
    attacked = frame[frame["scope"] == "train"].set_index(names)["average_precision"]
    full = frame["scope"] == "full"
    places = pd.MultiIndex.from_frame(frame.loc[full, names])
    frame.loc[full, "average_precision"] = attacked.reindex(places).to_numpy()
    return frame


def medians() -> pd.DataFrame:
    """Return medians over seeds, in the scopes of the paper."""
    frame = studies()
    parts = [_with_phi(x.reset_index(drop=True)) for _, x in frame.groupby("set")]
    frame = pd.concat(parts)
    frame = frame[frame["scope"] != "train"]
    names = ["set", "kind", "mechanism", "value"]
    scores = ["accuracy", "average_precision", "chance", "bounded_phi"]
    return frame.groupby(names, dropna=False)[scores].median().reset_index()


def framework_lines() -> Iterable[Line]:
    """Say which mechanisms of the framework were run."""
    frame = studies()
    ran = frame[["mechanism", "scope"]].drop_duplicates().agg(" ".join, axis=1)
    ran = set(map(str.strip, ran))
    asked = ["no privacy", "central", "VAE-LDP train", "VAE-LDP full"]
    ours = "dpgenerative.study: " + ", ".join(sorted(ran))
    says = verdict([each in ran for each in asked], "paths")
    yield "all sets", "a diagram of where noise enters", ours, says


class Study:
    """Medians of one set, by kind of noise.

    Parameters
    ----------
    frame : DataFrame
        Of `medians`.
    name : str
    """

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self._rows = frame[frame["set"] == name]
        (self.accuracy,), (self.attack,) = (
            self.column("no privacy", k) for k in ("accuracy", "average_precision")
        )
        self.chance = self._rows["chance"].iloc[0]

    def column(self, kind: str, score: str) -> list[float]:
        """Return a score from much to little noise."""
        rows = self._rows[self._rows["kind"] == kind]
        return rows.sort_values("value")[score].tolist()

    def kept(self, kind: str) -> list[float]:
        """Return the part of the accuracy beyond guessing that is left."""
        free = self.accuracy - self.chance
        return [(a - self.chance) / free for a in self.column(kind, "accuracy")]

    def text(self, kind: str) -> str:
        """Return accuracy and average precision, from much to little noise."""
        pairs = (self.column(kind, k) for k in ("accuracy", "average_precision"))
        accuracy, attack = (listed(x, "{:.3f}") for x in pairs)
        free = f"without noise {figure(self.accuracy)}, {figure(self.attack)}"
        epsilons = listed(self.column(kind, "value"))
        return f"epsilon {epsilons}: accuracy {accuracy}, AP {attack}; {free}"


def image_lines() -> Iterable[Line]:
    """Return the claims of Figure 3, on our sets of images."""
    frame = medians()
    for name in IMAGES:
        study = Study(frame, name)
        attack = study.attack
        near = verdict([abs(attack - MIA_ATTACK["images"]) <= NEAR])
        yield (
            f"{name}: AP without noise (b)",
            f"{MIA_ATTACK['images']:g}",
            figure(attack),
            near,
        )
        scores = [study.column("central", k) for k in ("accuracy", "average_precision")]
        scores[0].append(study.accuracy)
        scores[1].append(attack)
        claimed = "accuracy and AP fall with noise: .52, .75 at z .01; .31, .6 at .1"
        says = verdict([x == sorted(x) for x in scores], "scores")
        yield f"{name}: CDP (a, b)", claimed, study.text("central"), says
        lost = [1 - x for x in study.kept("LDP")]
        gone = [
            1 - (x - 0.5) / (attack - 0.5)
            for x in study.column("LDP", "average_precision")
        ]
        claimed = "AP hardly falls where accuracy is not lost (epsilon 500 and above)"
        says = verdict([g <= a for g, a in zip(gone, lost, strict=True)], "epsilons")
        yield f"{name}: LDP (c, d)", claimed, study.text("LDP"), says
        accuracy = study.column("VAE-LDP", "accuracy")
        says = verdict([accuracy[0] >= accuracy[-1]])
        claimed = "accuracy rises with noise"
        yield f"{name}: VAE-LDP (e)", claimed, study.text("VAE-LDP"), says
        found = [*study.column("VAE-LDP", "average_precision"), attack]
        yield (
            f"{name}: VAE-LDP (f)", "AP falls as noise grows", study.text("VAE-LDP"),
            verdict([found == sorted(found)]),
        )  # fmt: skip
    claimed = ", ".join(
        f"{k} {figure(v, 2)}" for k, v in MIA_REAL.items() if "LFW" in k
    )
    says = "untested: LFW and VGG-16 are not here"
    yield "LFW: accuracy of a classifier of real rows", claimed, "not run", says


def series_lines() -> Iterable[Line]:
    """Return the claims of Figure 4, on MotionSense."""
    frame = studies()
    real = frame[(frame["set"] == "MotionSense") & (frame["mechanism"] == "real rows")]
    study, best = Study(medians(), "MotionSense"), real["accuracy"].median()
    claimed = "real rows {}, generated {}".format(
        *(figure(each["MotionSense"], 2) for each in (MIA_REAL, MIA_GENERATED))
    )
    ours = f"real rows {figure(best)}, generated {figure(study.accuracy)}"
    says = f"{verdict([best > study.accuracy])}: generated rows serve worse"
    yield "accuracy without noise (a)", claimed, ours, says
    attacked = MIA_ATTACK["series"]
    near = verdict([abs(study.attack - attacked) <= NEAR])
    yield "AP without noise (b)", figure(attacked, 2), figure(study.attack), near
    kept, text = study.kept("central"), study.text("central")
    says = verdict([x >= 1 - SLIGHT for x in kept], "epsilons")
    yield "CDP (a)", "accuracy falls slightly as noise grows", text, says
    for kind, place in (("central", "b"), ("LDP", "d"), ("VAE-LDP", "f")):
        attack = study.column(kind, "average_precision")
        says = verdict([abs(x - 0.5) <= NEAR for x in attack], "epsilons")
        what = f"{kind.replace('central', 'CDP')} ({place})"
        yield what, "AP near .5 at every epsilon", study.text(kind), says
    accuracy = study.column("LDP", "accuracy")
    says = verdict([accuracy[-1] > study.accuracy])
    claimed = "accuracy rises a little at the least noise"
    yield "LDP (c)", claimed, study.text("LDP"), says
    says = verdict([study.kept("LDP")[0] < 1 - SLIGHT])
    yield "LDP (c)", "accuracy falls sharply with more", study.text("LDP"), says
    says = verdict([x < 1 - SLIGHT for x in study.kept("VAE-LDP")], "epsilons")
    claimed = "accuracy falls, by far"
    yield "VAE-LDP (e)", claimed, study.text("VAE-LDP"), says


def phi_lines() -> Iterable[Line]:
    """Return the claims of Figure 5 and of section 6, phi cut to [0, 2]."""
    frame = medians()
    noisy = frame.dropna(subset=["bounded_phi"])
    for name in SIZES.values():
        study = Study(frame, name)
        phi = {k: study.column(k, "bounded_phi") for k in ("central", "LDP", "VAE-LDP")}
        ours = {
            k: f"{listed(v, '{:.2f}')} at epsilon {listed(study.column(k, 'value'))}"
            for k, v in phi.items()
        }
        if name == "MotionSense":
            claimed, holds = "2 at the least noise (b)", [phi["central"][-1] >= 2]
        else:
            claimed, holds = "below 1 (a)", [x < 1 for x in phi["central"]]
        yield f"{name}: CDP", claimed, ours["central"], verdict(holds, "epsilons")
        few = sum(x > 1 for x in phi["LDP"])
        says = verdict([few < len(phi["LDP"]) / 2])
        yield f"{name}: LDP", "few above 1 (c, d)", ours["LDP"], says
        best = {k: max(v) for k, v in phi.items()}
        ours_ = ", ".join(f"{k} {v:.2f}" for k, v in best.items())
        says = verdict([best["VAE-LDP"] >= max(best.values())])
        yield f"{name}: greatest phi", "VAE-LDP (e, f)", ours_, says
    good = int((noisy["bounded_phi"] > 1).sum())
    ours_ = f"above 1 in {good} of {len(noisy)} settings"
    claimed = "favourable trade-offs are rare (abstract)"
    yield "all sets", claimed, ours_, verdict([good < len(noisy) / 2])
    attacks = {name: Study(frame, name).attack for name in SIZES.values()}
    ours_ = ", ".join(f"{k} {figure(v)}" for k, v in attacks.items())
    holds = [attacks[name] > attacks["MotionSense"] for name in IMAGES]
    claimed = "images are attacked better than series (section 6)"
    yield "AP without noise", claimed, ours_, verdict(holds, "sets")


def confusion_lines() -> Iterable[Line]:
    """Return the line of Figure 7: activities that are recognised under CDP."""
    runs = [r for r in read(OWN) if r.get("part") == "confusion"]
    frame = pd.DataFrame([r["recalls"] for r in runs])
    means = frame.median().sort_values(ascending=False)
    ours = ", ".join(f"{k} {figure(v)}" for k, v in means.items())
    claimed = (
        "standing and sitting are distinguished at epsilon 15.73, movements are not"
    )
    holds = [set(means.index[:2]) == STILL] if runs else []
    what = "MotionSense: median recall of three fits"
    yield what, claimed, ours or "not run", verdict(holds)
