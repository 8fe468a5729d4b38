"""A search over epsilon, and a pipeline with the synthesizer last.

A plain search is **not** private at the epsilon of its best candidate. Every candidate
is fitted once per fold, so that a search spends candidates x folds budgets, and one
more where it refits the winner. And the scores that choose the winner are read off
held-out rows without noise, which no budget covers. So search on rows that are public,
or on another table of the same kind, and fit the private rows once with what was found:
this example searches on rows that it treats as public and fits the others.

    python examples/grid_search.py
"""

from __future__ import annotations

import pandas as pd
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpgenerative import DPHFlowSynthesizer, Schema
from dpgenerative.datasets import load_fair

EPSILONS = [0.3, 1.0, 3.0]
N_FOLDS = 2
COLUMNS = ["rate_marriage", "age", "yrs_married", "religious", "affairs"]


def select(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose columns: a step that learns nothing from the rows."""
    return frame[COLUMNS]


def search(synth: DPHFlowSynthesizer, public: pd.DataFrame) -> None:
    """Compare budgets by the log-likelihood of held-out rows, which `score` returns."""
    grid = GridSearchCV(synth, {"epsilon": EPSILONS}, cv=N_FOLDS, refit=False)
    results = pd.DataFrame(grid.fit(public).cv_results_)
    print("Mean log-likelihood of held-out rows:")
    print(results[["param_epsilon", "mean_test_score", "std_test_score"]].to_string())
    spent = sum(EPSILONS) * N_FOLDS
    print(
        f"\nOn private rows this search would have spent epsilon {spent:g} "
        f"({len(EPSILONS)} candidates x {N_FOLDS} folds, by basic composition), and "
        "its scores would not have been covered at all."
    )


def fit_once(synth: DPHFlowSynthesizer, private: pd.DataFrame) -> None:
    """Fit a pipeline whose last step is the synthesizer, and sample from that step.

    Steps before it see the private rows as they are, so they must not learn anything
    from them: no scaler, no encoder, no imputer that is fitted to the rows.
    """
    pipeline = make_pipeline(FunctionTransformer(select), synth)
    pipeline.fit(private)
    print("\nThe pipeline, fitted once to the private rows:\n")
    print(pipeline[-1].privacy_)
    print()
    print(pipeline[-1].sample(5).to_string())


def main() -> None:
    fair = load_fair()
    schema = Schema(fair.schema[name] for name in COLUMNS)
    public, private = train_test_split(fair.data, train_size=2000, random_state=0)
    search(DPHFlowSynthesizer(schema=schema, n_steps=60), select(public))
    fit_once(DPHFlowSynthesizer(epsilon=1.0, schema=schema), private)


if __name__ == "__main__":
    main()
