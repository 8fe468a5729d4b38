"""What a search over epsilon costs, and a search that stays within a budget.

A classifier that sees synthetic rows only is tried at several budgets by scikit-learn's
`GridSearchCV`. Each candidate is fitted once per fold, so that the search spends many
budgets, and its scores, read off private rows without noise, are covered by none. It
also prefers the largest epsilon, which buys the best score. So what it is good for is
the curve of utility over privacy, to be drawn on rows that are public, or of a table of
the same kind: that is what this example draws. Other parameters are then chosen by
`PrivateSearch`, whose total, scores included, is the epsilon that was asked for.

    python examples/grid_search.py --jobs 2 --out grid-search-output

takes 4,000 rows of Fair's survey, which statsmodels bundles.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, PredefinedSplit, train_test_split

from dpgenerative import (
    DPHFlowSynthesizer,
    PrivateSearch,
    Schema,
    SyntheticClassifier,
    search_privacy,
)
from dpgenerative.datasets import load_fair

EPSILONS = [0.1, 0.3, 1.0, 3.0]
N_FOLDS = 2
N_ROWS = 4000


def load() -> tuple[pd.DataFrame, pd.Series, Schema]:
    """Return a table, the label to predict, and what is public about the table."""
    fair = load_fair()
    label = (fair.data[fair.target] > 0).rename("any_affair")
    columns = [column for column in fair.schema.columns if column.name != fair.target]
    return fair.data.drop(columns=fair.target), label, Schema(columns)


def curve(
    model: SyntheticClassifier, X: pd.DataFrame, y: pd.Series, jobs: int
) -> GridSearchCV:
    """Return the search over epsilon, every row in a fold drawn for itself."""
    folds = PredefinedSplit(np.random.default_rng(0).integers(N_FOLDS, size=len(X)))
    grid = {"synthesizer__epsilon": EPSILONS}
    search = GridSearchCV(model, grid, cv=folds, scoring="roc_auc", n_jobs=jobs)
    return search.fit(X, y)


def draw(search: GridSearchCV, file: Path) -> None:
    """Draw the score of held-out rows over epsilon, with its spread over folds."""
    found = search.cv_results_
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    axes.errorbar(
        EPSILONS, found["mean_test_score"], found["std_test_score"], marker="o"
    )
    axes.set(xscale="log", xlabel="epsilon of one fit", ylabel="AUROC, held-out rows")
    figure.savefig(file, dpi=120)


def main(jobs: int, out: Path) -> None:
    X, y, schema = load()
    X, rest, y, y_rest = train_test_split(X, y, train_size=N_ROWS, random_state=0)
    flow = DPHFlowSynthesizer(schema=schema, n_steps=150)
    model = SyntheticClassifier(flow, random_state=0)

    search = curve(model, X, y, jobs)
    results = pd.DataFrame(search.cv_results_)
    shown = ["param_synthesizer__epsilon", "mean_test_score", "std_test_score"]
    print(results[shown].to_string(index=False))
    chosen = search.best_params_["synthesizer__epsilon"]
    print(f"\nThe search prefers epsilon {chosen:g}, as plain searches do.\n")
    print(search_privacy(search))
    out.mkdir(parents=True, exist_ok=True)
    draw(search, out / "curve.png")
    print(f"\nUtility over privacy: {out / 'curve.png'}")

    grid = {
        "synthesizer__clipping": ["flat", "per-layer"],
        "n_samples": [2000, 8000],
    }
    private = PrivateSearch(model, grid, epsilon=1.0, mean_trials=3).fit(X, y)
    print(f"\nChosen within epsilon 1: {private.best_params_}")
    print(
        f"Accuracy {private.best_score_:.3f} on rows held out privately (its noise has "
        f"standard deviation {private.score_std_:.3f}), and "
        f"{private.score(rest, y_rest):.3f} on rows that took no part."
    )
    print(private.privacy_)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes; default: 1")
    parser.add_argument("--out", type=Path, default=Path("grid-search-output"))
    main(**vars(parser.parse_args()))
