"""Rows of one kind, partial rows completed, and impossible rows kept out.

A survey of 6,366 women about their marriages (Fair 1978, bundled with statsmodels) is
learned once, under differential privacy. Then, at no further cost,

- samples are asked for that satisfy conditions, and compared with the rows of a large
  plain sample that happen to satisfy them;
- rows of which only some columns are known are completed;
- a combination that the code book rules out never comes up, and every row is numbered.

    python examples/conditional.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

from dpgenerative import Column, DPHFlowSynthesizer, Impossible, Schema
from dpgenerative.datasets import load_fair
from dpgenerative.tables.conditions import satisfies

CONDITIONS = {
    "first in the flow's order": {"affairs": (0.01, None)},
    "elsewhere": {"religious": 4.0, "age": [37.0, 42.0]},
    "rare": {"religious": 4.0, "age": 42.0, "educ": 20.0, "affairs": (0.01, None)},
}


def public_facts() -> Schema:
    """The code book: its columns, a number per row, and what cannot be.

    Nobody under twenty (17.5) has been married for more than seven years (9 and above).
    """
    number = Column("respondent", "integer", role="id")
    too_young = Impossible({"age": 17.5, "yrs_married": [9.0, 13.0, 16.5, 23.0]})
    return Schema([number, *load_fair().schema.columns], [too_young])


def distance(found: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Mean total variation distance of the one-way marginals of codes."""
    columns = found.columns.drop(["respondent", "affairs"])
    gaps = [
        found[name]
        .value_counts(normalize=True)
        .sub(reference[name].value_counts(normalize=True), fill_value=0)
        .abs()
        .sum()
        / 2
        for name in columns
    ]
    return float(np.mean(gaps))


def compare(synth: DPHFlowSynthesizer, plain: pd.DataFrame) -> None:
    """Sample under conditions, and look the same rows up in a plain sample."""
    for name, given in CONDITIONS.items():
        start = time.perf_counter()
        rows = synth.sample(2_000, given=given)
        seconds = time.perf_counter() - start
        met = [satisfies(plain[column], each) for column, each in given.items()]
        reference = plain[np.logical_and.reduce(met)]
        assert all(
            satisfies(rows[column], each).all() for column, each in given.items()
        )
        print(
            f"{name}: {given}\n  {len(reference)} of {len(plain)} plain rows satisfy "
            f"it; 2,000 rows in {seconds:.2f} s, at a distance of "
            f"{distance(rows, reference):.3f} from these"
        )


def complete(synth: DPHFlowSynthesizer) -> None:
    """Draw what is not known of three women, three times each."""
    known = pd.DataFrame(
        {
            "age": [22.0, 32.0, 42.0],
            "yrs_married": [2.5, 9.0, 23.0],
            "religious": [4.0, 1.0, np.nan],
        },
        index=["a young believer", "an unbeliever", "an older woman"],
    )
    part = known.loc[known.index.repeat(3)]
    whole = synth.sample(given=part, impute=True)
    print("\nThree completions of each of three partial rows:")
    print(whole.drop(columns=["respondent", "occupation_husb"]).to_string())


def main(epsilon: float) -> None:
    frame = load_fair().data
    frame.insert(0, "respondent", np.arange(len(frame)) + 1_000_000)
    synth = DPHFlowSynthesizer(epsilon=epsilon, delta=1e-5, schema=public_facts())
    synth.fit(frame)
    print(synth.privacy_)

    plain = synth.sample(200_000)
    impossible = plain.query("age == 17.5 and yrs_married >= 9")
    print(f"\nRows that cannot be, of {len(plain)}: {len(impossible)}")
    print(f"Respondents are numbered from {plain['respondent'].min()} on.\n")
    compare(synth, plain)
    complete(synth)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0, help="default: 1")
    main(**vars(parser.parse_args()))
