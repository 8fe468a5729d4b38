"""k-marginal scores of NIST's Diverse Communities excerpts, and their public archive.

The American Community Survey 2019 in up to 24 columns, in five sets of features; the
code book alone makes the schema. A score is 1000 for the same rows and 0 for rows that
have nothing in common with them: 500 (2 - mean L1 distance) over all pairs of features,
each crossed with PUMA (the area) where it is present, numbers in 20 bins of the real
rows' ranks, as ``sdnist`` 2.4 computes it. ::

    python benchmarks/nist.py --data DIR --archive DIR --summary
    python benchmarks/nist.py --data DIR --features simple all --seeds 0
    python benchmarks/nist.py --data DIR --areas --conditions --features family all

``--data`` is a folder as ``sdnist`` expects it: ``data_dictionary.json``, and a folder
with one CSV file of the excerpt's name for every excerpt (``--excerpt``). ``--archive``
is a folder of entries with their published scores in ``scores.csv``. Beside the fits
stand samples of 20 to 40 % of the real rows.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from records import append, markdown_table, origin, read
from tabular import setting

from dpgenerative import Column, DPHFlowSynthesizer, Impossible, Schema

DEFAULT_OUT = Path(__file__).parent / "results" / "nist.jsonl"
DELTA = 1e-5
AREA, UNSCORED = "PUMA", ("PUMA", "INDP")
BINNED = ("AGEP", "POVPIP", "PINCP", "PWGTP", "WGTP")
NOT_APPLICABLE = "N"
YOUNGER = re.compile(r"less than (\d+) years")
_DEMOGRAPHIC = "AGEP SEX MSP RAC1P HOUSING_TYPE OWN_RENT EDU PINCP_DECILE DVET DEYE"
_INDUSTRY = "PUMA SEX MSP HISP RAC1P OWN_RENT INDP_CAT EDU PINCP_DECILE"
_FAMILY = "PUMA AGEP SEX MSP HISP RAC1P NOC NPF OWN_RENT PINCP_DECILE POVPIP"
_SIMPLE = (
    "PUMA AGEP SEX MSP HISP RAC1P NOC NPF HOUSING_TYPE OWN_RENT DENSITY INDP_CAT EDU "
    "PINCP PINCP_DECILE POVPIP DVET DREM DPHY DEYE DEAR"
)
FEATURES = {
    "demographic": _DEMOGRAPHIC.split(),
    "industry": _INDUSTRY.split(),
    "family": _FAMILY.split(),
    "simple": _SIMPLE.split(),
    "all": [*_SIMPLE.split(), "INDP", "WGTP", "PWGTP"],
}
AIMS = dict(zip(FEATURES, (982, 900, 890, 890, 875), strict=True))
SHARES = (0.2, 0.3, 0.4)
ARCHIVE = {
    "mwem_pgm": ("all-features", "MWEM+PGM", 1),
    "genetic_sd_e_10_simple": ("simple-features", "Genetic SD", 10),
    "sarus_sdg_demographic": ("demographic-focused", "Sarus SDG", 10),
}
TOLERANCE = 1.0

Dictionary = dict[str, dict[str, Any]]


# Rows and what the code book says of them ---------------------------------------------


def load(root: Path, excerpt: str) -> tuple[pd.DataFrame, Dictionary]:
    """Return an excerpt's rows as text, and the code book."""
    book = json.loads((root / "data_dictionary.json").read_text(encoding="utf-8"))
    return read_text(next(root.glob(f"*/{excerpt}.csv"))), book


def read_text(path: Path) -> pd.DataFrame:
    """Return a CSV file as text, which "N" is too."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def column_of(name: str, book: Dictionary) -> Column:
    """Return what the code book says of a column."""
    values = book[name].get("values", {NOT_APPLICABLE: "", "min": 0, "max": 9999})
    nullable = NOT_APPLICABLE in values
    if "min" not in values:
        return Column(name, "categorical", levels=tuple(values), nullable=False)
    # Codes beside a range, such as 0 for none, are numbers too.
    beside = [float(v) for v in values if v not in ("min", "max", NOT_APPLICABLE)]
    lower, upper = min([*beside, values["min"]]), max([*beside, values["max"]])
    is_whole = all(float(end).is_integer() for end in (lower, upper))
    kind = "integer" if is_whole else "continuous"
    return Column(name, kind, lower=lower, upper=upper, nullable=nullable)


def schema_of(
    features: list[str], book: Dictionary, conditions: bool = False
) -> Schema:
    """Return the schema of a set of features, with conditions on several or without."""
    facts = conditions_of(features, book) if conditions else []
    return Schema([column_of(name, book) for name in features], facts)


def conditions_of(features: list[str], book: Dictionary) -> list[Impossible]:
    """Return what the code book says of who has no value: children, group quarters."""
    pairs: list[tuple[dict[str, Any], str, bool]] = []  # who, has no value, nobody else
    for name in features:
        text = book[name].get("values", {}).get(NOT_APPLICABLE, "")
        if "AGEP" in features and (match := YOUNGER.search(text)):
            children = {"AGEP": (None, int(match[1]) - 1)}
            pairs.append((children, name, " or " not in text))
        if "OWN_RENT" in features and "GQ" in text:
            pairs.append(({"OWN_RENT": "0"}, name, "family" not in text))
    found = []
    for who, name, nobody_else in pairs:
        column = column_of(name, book)
        values = [each for each in column.levels or () if each != NOT_APPLICABLE]
        missing = NOT_APPLICABLE if column.levels else None
        found.append(Impossible({**who, name: values or (None, None)}))
        if nobody_else:
            others: dict[str, Any] = {"OWN_RENT": ["1", "2"]}
            if "AGEP" in who:
                others = {"AGEP": (who["AGEP"][1] + 1, None)}
            found.append(Impossible({**others, name: missing}))
    if {"OWN_RENT", "HOUSING_TYPE"} <= set(features):
        found += [
            Impossible({"OWN_RENT": "0", "HOUSING_TYPE": "1"}),
            Impossible({"OWN_RENT": ["1", "2"], "HOUSING_TYPE": ["2", "3"]}),
        ]
    return found


def typed(rows: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the columns of a schema, in its dtypes."""
    return pd.DataFrame({c.name: _typed(rows[c.name], c) for c in schema.columns})


def _typed(series: pd.Series, column: Column) -> pd.Series:
    if column.levels is not None:
        return pd.Categorical(series, categories=column.levels)
    numbers = pd.to_numeric(series.replace(NOT_APPLICABLE, None))
    return numbers.astype("Int64" if column.kind == "integer" else float)


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as the files have them."""
    return rows.astype(object).where(rows.notna(), NOT_APPLICABLE).astype(str)


# Score --------------------------------------------------------------------------------


class KMarginal:
    """Scores synthetic rows against real ones; both as text.

    Parameters
    ----------
    real : DataFrame
    book : mapping
        The code book. A column with a value outside it is left out.
    """

    def __init__(self, real: pd.DataFrame, book: Dictionary) -> None:
        self.real, self.book = real, book

    def distances(self, synthetic: pd.DataFrame) -> pd.Series:
        """Return the L1 distance of every pair of features."""
        names = [
            c for c in self.real if c in synthetic and self._is_valid(synthetic[c])
        ]
        codes = {name: self._codes(name, synthetic[name]) for name in names}
        pairs = combinations(sorted(set(names) - set(UNSCORED)), 2)
        found = {}
        for pair in pairs:
            columns = [AREA, *pair] if AREA in names else list(pair)
            found[pair] = self._distance([codes[name] for name in columns])
        return pd.Series(found)

    def score(self, synthetic: pd.DataFrame) -> float:
        """Return the k-marginal score, from 0 to 1000."""
        return float(500 * (2 - self.distances(synthetic).mean()))

    def _is_valid(self, series: pd.Series) -> bool:
        values = self.book[str(series.name)].get(
            "values", {NOT_APPLICABLE: "", "min": 0}
        )
        numbers = pd.to_numeric(series, errors="coerce")
        if NOT_APPLICABLE in values:
            numbers, series = (x[series != NOT_APPLICABLE] for x in (numbers, series))
        if series.name == AREA:
            return bool(series.isin(values).all())
        levels = [float(v) for v in values if v.isdigit()]
        return bool(
            (numbers.notna() if "min" in values else numbers.isin(levels)).all()
        )

    def _codes(self, name: str, series: pd.Series) -> tuple[np.ndarray, ...]:
        """Return the bins of the real and of the synthetic rows."""
        real = self.real[name]
        if name == AREA:
            levels = list(self.book[AREA]["values"])
            return tuple(pd.Categorical(x, levels).codes for x in (real, series))
        numbers = [
            pd.to_numeric(x.replace(NOT_APPLICABLE, None)) for x in (real, series)
        ]
        if name in BINNED:
            numbers = [np.trunc(x) for x in numbers]
        edges = self._edges(name, numbers[0])
        bins = [np.searchsorted(edges, x.fillna(-np.inf)) for x in numbers]
        missing = len(edges) + 1
        return tuple(
            np.where(x.isna(), missing, b) for x, b in zip(numbers, bins, strict=True)
        )

    def _edges(self, name: str, real: pd.Series) -> np.ndarray:
        """Return upper ends of all bins but the last."""
        if name == "DENSITY":
            most = self.book[name]["values"]["max"] + 500
            return np.array([150, *np.logspace(1, np.log10(most), 21)[8:]])
        if name not in BINNED:
            return np.sort(real.dropna().unique())
        whole = real.dropna().astype(int)
        ranks = (20 * whole.rank(pct=True)).astype(int).clip(upper=19)
        return whole.groupby(ranks).max().to_numpy()[:-1]

    def _distance(self, codes: list[tuple[np.ndarray, ...]]) -> float:
        keys = [np.zeros(len(x), np.int64) for x in codes[0]]
        for parts in codes:
            size = max(int(part.max()) for part in parts) + 2
            keys = [k * size + p for k, p in zip(keys, parts, strict=True)]
        found, places = np.unique(np.concatenate(keys), return_inverse=True)
        n = len(keys[0])
        shares = [
            np.bincount(part, minlength=len(found)) / len(part)
            for part in (places[:n], places[n:])
        ]
        return float(np.abs(shares[0] - shares[1]).sum())


# Runs ---------------------------------------------------------------------------------


def fit(rows: pd.DataFrame, book: Dictionary, config: dict[str, Any]) -> dict[str, Any]:
    """Fit a set of features and score as many synthetic rows."""
    conditions = config.get("conditions", False)
    schema = schema_of(FEATURES[config["features"]], book, conditions)
    seed, params = config["seed"], config["params"]
    model = DPHFlowSynthesizer(
        config["epsilon"], DELTA, schema=schema, random_state=seed
    ).set_params(**params)
    start = time.perf_counter()
    model.fit(typed(rows, schema))
    seconds = time.perf_counter() - start
    synthetic = as_text(model.sample(len(rows), random_state=seed))
    score = KMarginal(rows[list(synthetic)], book).score(synthetic)
    tables = [list(table) for table in model.tables_]
    return {
        "score": score,
        "fit_seconds": seconds,
        "epsilon_spent": model.epsilon_,
        "tables": tables,
    }


def sample(
    rows: pd.DataFrame, book: Dictionary, config: dict[str, Any]
) -> dict[str, Any]:
    """Score a sample of the real rows."""
    real = rows[FEATURES[config["features"]]]
    part = real.sample(frac=config["share"], random_state=config["seed"])
    return {"score": KMarginal(real, book).score(part)}


def check_archive(rows: pd.DataFrame, book: Dictionary, folder: Path) -> list[dict]:
    """Score the entries of an archive; return them with their published scores."""
    published = pd.read_csv(folder / "scores.csv").set_index(
        ["feature_set", "algorithm", "epsilon"]
    )
    scorer = KMarginal(rows, book)
    found = []
    for name, entry in ARCHIVE.items():
        stated = float(published.loc[entry, "k_marginal"])
        score = scorer.score(read_text(folder / f"{name}.csv"))
        found.append({"entry": name, "score": score, "published": stated})
    return found


def configurations(options: argparse.Namespace) -> list[dict[str, Any]]:
    """List what the command line asks for."""
    found: list[dict[str, Any]] = []
    for features, seed in product(options.features, options.seeds):
        params = dict(options.set)
        if options.areas and AREA in FEATURES[features]:
            others = [name for name in FEATURES[features] if name not in UNSCORED]
            params["workload"] = [[AREA, name] for name in others]
        shared = {"excerpt": options.excerpt, "features": features, "seed": seed}
        shares = () if params or options.conditions else SHARES
        fitted = {**shared, "method": "flow", "params": params}
        fitted |= {"conditions": True} if options.conditions else {}
        found += [{**shared, "method": "real rows", "share": s} for s in shares]
        found += [{**fitted, "epsilon": epsilon} for epsilon in options.epsilons]
    return found


def key(record: dict[str, Any]) -> str:
    """Identify a configuration."""
    names = (
        "excerpt", "features", "seed", "method", "share", "epsilon", "params",
        "conditions",
    )  # fmt: skip
    return json.dumps({n: record[n] for n in names if n in record}, sort_keys=True)


def run_all(options: argparse.Namespace) -> int:
    """Run what is not in the results file yet; return how many entries are off."""
    rows, book = load(options.data, options.excerpt)
    records = read(options.out)
    new: list[dict[str, Any]] = []
    known = {key(record) for record in records}
    if options.archive:
        checks = check_archive(rows, book, options.archive)
        new = [{"excerpt": options.excerpt, "method": "archive", **c} for c in checks]
        _append(options.out, new)
    for config in configurations(options):
        if key(config) not in known:
            run = fit if config["method"] == "flow" else sample
            _append(options.out, [{**config, **run(rows, book, config)}])
    return sum(abs(c["score"] - c["published"]) > TOLERANCE for c in new)


def _append(path: Path, records: list[dict[str, Any]]) -> None:
    for record in records:
        append(path, record | origin())
        print(record, flush=True)


# Summary ------------------------------------------------------------------------------


def summarise(records: list[dict[str, Any]], published: pd.DataFrame | None) -> str:
    """Return markdown tables: the scorer, means over seeds, and the archive."""
    text = ["# k-marginal scores of NIST's excerpts", ""]
    checks = {r["entry"]: r for r in records if r["method"] == "archive"}
    if checks:
        text += ["Entries of the public archive, scored here and as published:", ""]
        rows = [
            [name, f"{r['score']:.1f}", f"{r['published']:.0f}"]
            for name, r in checks.items()
        ]
        text += markdown_table(["entry", "here", "published"], rows)
    text += ["Means over seeds (lowest to highest):", ""]
    found: dict[str, dict[str, list[float]]] = {}
    for r in records:
        if r["method"] != "archive":
            scores = found.setdefault(_label(r), {})
            scores.setdefault(r["features"], []).append(r["score"])
    head = ["rows", *FEATURES, "seeds"]
    rows = [["asked for", *map(str, AIMS.values()), ""]]
    if published is not None:
        rows.append(["best private entry of the archive, any epsilon"])
        rows[-1] += [_best_private(published, name) for name in FEATURES] + [""]
    for name, scores in found.items():
        cells = [_mean_and_range(scores.get(features, [])) for features in FEATURES]
        rows.append([name, *cells, str(max(map(len, scores.values())))])
    text += markdown_table(head, rows)
    said = "Epsilon 1 where nothing else is said, delta 1e-5; the code book is the "
    text += [said + "schema; as many rows are drawn as were fitted."]
    runs = sorted(
        {f"{r['revision']} ({r['machine']}, {r['date'][:10]})" for r in records}
    )
    return "\n".join([*text, "", f"Revisions: {'; '.join(runs)}"]) + "\n"


def _label(record: dict[str, Any]) -> str:
    if record["method"] != "flow":
        return f"{record['share']:.0%} of the real rows"
    params = [
        "each feature counted with PUMA" if name == "workload" else f"{name}={value}"
        for name, value in record["params"].items()
    ]
    if record["epsilon"] != 1:
        params = [f"epsilon {record['epsilon']:g}", *params]
    params += ["the code book's conditions"] * record.get("conditions", False)
    return ", ".join(["DPHFlowSynthesizer", *params])


def _mean_and_range(scores: list[float]) -> str:
    if not scores:
        return ""
    mean = f"{np.mean(scores):.1f}"
    ends = f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
    return mean + ends


def _best_private(published: pd.DataFrame, features: str) -> str:
    is_ours = published["library"].str.startswith("dpgenerative")
    rows = published[(published["privacy"] == "dp") & ~is_ours]
    rows = rows[rows["feature_set"].str.fullmatch(f"{features}-(focused|features)")]
    best = rows.loc[rows["k_marginal"].idxmax()]
    return f"{best['k_marginal']:.0f} ({best['algorithm']}, {best['epsilon']:g})"


def write_summary(options: argparse.Namespace) -> None:
    """Write the tables beside the records."""
    published = None
    if options.archive:
        published = pd.read_csv(options.archive / "scores.csv")
        published = published[published["target"] == options.excerpt]
    records = [r for r in read(options.out) if r["excerpt"] == options.excerpt]
    text = summarise(records, published)
    options.out.with_suffix(".md").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run, summarise, or both; return 1 where an archived entry is scored wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder of the excerpts")
    add("--archive", type=Path, metavar="DIR", help="entries to check the scorer with")
    add("--excerpt", default="national2019")
    add("--features", nargs="*", choices=FEATURES, default=list(FEATURES))
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--epsilons", nargs="+", type=float, default=[1.0])
    add("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE")
    add("--areas", action="store_true", help=f"count each feature with {AREA}")
    add("--conditions", action="store_true", help="state the code book's conditions")
    add("--out", type=Path, default=DEFAULT_OUT, help="results file (JSON lines)")
    add("--summary", action="store_true", help="write the results as markdown tables")
    options = parser.parse_args(arguments)
    wrong = run_all(options) if options.data else 0
    if options.summary:
        write_summary(options)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
