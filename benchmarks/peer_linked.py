"""Rows of people by mostlyai-engine's sequential model, under differential privacy.

Run by ``linked.py`` with the interpreter that has it: rows in, rows out. People with
what is constant of them are given to it as context, unprotected; its epsilon is split
into a tenth for the range of values and the rest for training.
"""

import argparse
import tempfile
import time

import pandas as pd
from mostlyai import engine
from mostlyai.engine.domain import DifferentialPrivacyConfig

VALUES = 0.1
"""Share of epsilon for the ranges of values."""


def main() -> None:
    """Fit, and write as many people."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("rows", help="a Parquet file")
    add("made", help="the Parquet file to write")
    add("--epsilon", type=float, default=1.0)
    add("--noise", type=float, default=1.5, help="noise multiplier, 1.5 by default")
    add("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = pd.read_parquet(options.rows)
    people = rows.drop_duplicates("person")[["person", "sex", "born"]]
    start = time.perf_counter()
    engine.set_random_state(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        engine.split(
            tgt_data=rows.drop(columns=["sex", "born"]), ctx_data=people,
            tgt_context_key="person", ctx_primary_key="person", workspace_dir=folder,
        )  # fmt: skip
        privacy = DifferentialPrivacyConfig(
            max_epsilon=(1 - VALUES) * options.epsilon, delta=1e-5,
            noise_multiplier=options.noise, max_grad_norm=1.0,
            value_protection_epsilon=VALUES * options.epsilon,
        )  # fmt: skip
        engine.analyze(workspace_dir=folder, differential_privacy=privacy)
        engine.encode(workspace_dir=folder)
        engine.train(workspace_dir=folder, differential_privacy=privacy)
        engine.generate(workspace_dir=folder, ctx_data=people)
        made = pd.read_parquet(f"{folder}/SyntheticData").merge(people, on="person")
    made.attrs["seconds"] = time.perf_counter() - start
    made.to_parquet(options.made)


if __name__ == "__main__":
    main()
