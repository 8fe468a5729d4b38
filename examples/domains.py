"""Private or public domain: what it saves to say what is known.

A synthesizer that is told nothing finds the bounds of numbers and the levels of
strings from noisy counts, and pays for both out of its budget. What was public anyway
(a code book, a form) costs nothing when a schema states it. Here the same private
rows of Fair's survey are fitted both ways at a small epsilon, and the synthetic
tables are compared with the rows. The comparison reads private rows without noise: it
is not for release.

    python examples/domains.py --epsilon 0.1
"""

from __future__ import annotations

import argparse

import pandas as pd

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.datasets import load_fair
from dpgenerative.metrics import marginal_distance

WORK = {
    1: "student",
    2: "farming or unskilled",
    3: "clerical or sales",
    4: "teaching, nursing, skilled",
    5: "managing or administration",
    6: "professional with a degree",
}


def load() -> tuple[pd.DataFrame, Schema]:
    """Return the survey with occupations as words, and its code book."""
    fair = load_fair()
    names = ["occupation", "occupation_husb"]
    words = {name: fair.data[name].map(WORK).astype(object) for name in names}
    columns = [
        Column(column.name, "categorical", levels=list(WORK.values()), nullable=False)
        if column.name in names
        else column
        for column in fair.schema.columns
    ]
    return fair.data.assign(**words), Schema(columns)


def main(epsilon: float) -> None:
    private, code_book = load()
    found = {}
    for name, schema in {"found privately": None, "stated": code_book}.items():
        synth = DPHFlowSynthesizer(epsilon=epsilon, delta=1e-5, schema=schema)
        synthetic = synth.fit(private).sample(20_000)
        ages = synth.schema_["age"]
        found[name] = {
            "occupations": synthetic["occupation"].nunique(),
            "rows without one": f"{synthetic['occupation'].isna().mean():.1%}",
            "age": f"{synthetic['age'].min():g} to {synthetic['age'].max():g}",
            "values of age": synthetic["age"].nunique(),
            "1-way distance": f"{marginal_distance(private, synthetic, k=1).mean:.3f}",
            "2-way distance": f"{marginal_distance(private, synthetic, k=2).mean:.3f}",
        }
        print(f"Domain {name}. Age as the synthesizer knows it:\n  {ages}\n")
    print(f"Synthetic tables at epsilon {epsilon:g}:\n")
    print(pd.DataFrame(found).to_string())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=0.1, help="default: 0.1")
    main(**vars(parser.parse_args()))
