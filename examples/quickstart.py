"""A private copy of a sensitive survey, and how good it is.

Fair's survey of extramarital affairs (6,366 women, bundled with statsmodels) is split
into private rows and a held-out fifth. A synthesizer learns the private rows at the
budget given, and the report below says what that released. Then the synthetic table is
compared with the private one, and with what chance and independence would give.

    python examples/quickstart.py --epsilon 1 --out quickstart-output

writes ``synthetic.csv``, which is what may be released, and ``marginals.png`` and
``report.html``, which describe the private rows too and are **not** for release, any
more than the tables printed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd
from sklearn.model_selection import train_test_split

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.datasets import load_fair
from dpgenerative.metrics import marginal_distance, report
from dpgenerative.metrics.plots import plot_marginals


def distances(private: pd.DataFrame, synthetic: pd.DataFrame) -> pd.DataFrame:
    """Mean total variation distance of all one-way and two-way marginals."""
    found = {f"{k}-way": marginal_distance(private, synthetic, k) for k in (1, 2)}
    rows = {
        "synthetic rows": {name: each.mean for name, each in found.items()},
        "private rows, resampled": {name: each.floor for name, each in found.items()},
        "private columns, shuffled": {name: e.baseline for name, e in found.items()},
    }
    return pd.DataFrame(rows).T


def any_affair(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the hours spent by the question that classifiers are to answer."""
    return frame.assign(any_affair=frame["affairs"] > 0).drop(columns="affairs")


def main(epsilon: float, out: Path) -> None:
    fair = load_fair()
    private, held_out = train_test_split(fair.data, test_size=0.2, random_state=0)

    start = time.perf_counter()
    synth = DPHFlowSynthesizer(
        epsilon=epsilon, delta=1e-5, schema=fair.schema, verbose=True
    )
    synth.fit(private)
    synthetic = synth.sample(len(fair.data))
    print(synth.privacy_)
    print(f"\nFitted and sampled in {time.perf_counter() - start:.1f} s.")

    print("\nDistance to the private rows (mean total variation of marginals):")
    print(distances(private, synthetic).round(3).to_string())

    real, fake, holdout = map(any_affair, (private, synthetic, held_out))
    page = report(real, fake, holdout=holdout, target="any_affair", synthesizer=synth)
    print("\nPredicting an affair of held-out people (mean of nine classifiers):")
    scores = page.utility.drop(columns=["model", "repeat"])
    print(scores.groupby("trained_on", sort=False).mean().round(3).to_string())

    out.mkdir(parents=True, exist_ok=True)
    synthetic.to_csv(out / "synthetic.csv", index=False)
    plot_marginals(private, synthetic).savefig(out / "marginals.png")
    page.save(out / "report.html")
    print(f"\nFor release:     {out / 'synthetic.csv'}")
    print(f"Not for release: {out / 'marginals.png'}, {out / 'report.html'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0, help="default: 1")
    parser.add_argument("--out", type=Path, default=Path("quickstart-output"))
    main(**vars(parser.parse_args()))
