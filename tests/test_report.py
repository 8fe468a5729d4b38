"""The report: what the page says, what it must not say, and its pictures."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB

from dpgenerative import Column, DPHFlowSynthesizer, Schema, forecast
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.metrics import findings, measuring
from dpgenerative.metrics import page as page_module
from dpgenerative.metrics.fidelity import permuted
from dpgenerative.metrics.losses import changed_ranges, lost_values
from dpgenerative.metrics.membership import auc_cap, roc_cap
from dpgenerative.metrics.reporting import report
from dpgenerative.metrics.utility import tstr
from dpgenerative.privacy.norm import NORM
from dpgenerative.privacy.plan import PrivacyPlan, row_budget
from dpgenerative.privacy.report import PrivacyReport

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

BANNER = "Contains private statistics: not for release"
SENTINEL = "onlyreal"
HOSTILE = "<script>alert('x')</script>\"&{0}$x$"
VOID = {"meta", "img", "br", "rect", "circle"}


def table(n, seed):
    """Make dependent columns of three kinds, with missing values."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    kind = np.array(["low", "mid", "high"])[np.digitize(x, [-0.5, 0.5])]
    size = x + 0.3 * rng.normal(size=n)
    size[rng.random(n) < 0.05] = np.nan
    sick = np.where(x + 0.5 * rng.normal(size=n) > 0.5, "yes", "no")
    return pd.DataFrame({"x": x, "size": size, "kind": kind, "sick": sick})


class Guaranteed(PrivacyReport):
    """A report whose curve is at hand: accounting takes seconds."""

    def curve(self):
        epsilon, delta = self.plan.guarantee
        return ((epsilon, delta), (epsilon / 2, 0.01)) if self.plan.private else ()


def fitted(epsilon=1.0, public=("column names",), k=1):
    """Stand in for a fitted synthesizer: `report` reads `privacy_` alone."""
    row = (np.inf, 1e-5) if epsilon is None else row_budget(epsilon, 1e-5, k)
    plan = PrivacyPlan(
        *row, count_epsilon=0.01, n_rows=400, threshold_delta=0.0,
        noise_multiplier=2.0, sampling_rate=0.1, n_steps=10, rows_per_unit=k,
        releases=(replace(MARGINALS, multiplier=4.0), replace(NORM, multiplier=9.0)),
    )  # fmt: skip
    notes = ("The privacy unit is one row.",)
    spent = plan.guarantee[0]
    privacy = Guaranteed(plan, spent, "flat clipping to norm 1", public, notes)
    return SimpleNamespace(privacy_=privacy)


def words(page):
    """Return the page's text as read, without tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def everything(page):
    """Return the page and all pictures inside it, decoded."""
    pictures = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    assert pictures
    decoded = [base64.b64decode(each).decode() for each in pictures]
    return html.unescape("\n".join([page, *decoded]))


def grades(result):
    return result.summary().set_index("topic")["grade"].to_dict()


def few_models(real, holdout, synthetic, target, **options):
    numeric = pd.api.types.is_float_dtype(holdout[target])
    models = {"ridge": Ridge()} if numeric else {"gaussian_nb": GaussianNB()}
    return tstr(real, holdout, synthetic, target, classifiers=models, **options)


@pytest.fixture(scope="module")
def full():
    """Report on everything there is, drawn in full."""
    real, synthetic, holdout = table(600, 0), table(500, 1), table(300, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "tstr", few_models)
        return report(
            real, synthetic, holdout=holdout, target="sick", synthesizer=fitted()
        )


@pytest.fixture
def quick(monkeypatch):
    """Train one model a table, of the right kind, and draw nothing."""
    monkeypatch.setattr(measuring, "tstr", few_models)
    monkeypatch.setattr(page_module, "_svg", lambda axes: "data:,")
    for name in ("plot_marginal", "plot_association"):
        monkeypatch.setattr(page_module.plots, name, lambda *args, **options: None)


class Structure(HTMLParser):
    """Collects tags, and fails on one that is closed in the wrong place."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


# The page


def test_page_has_every_section_and_is_well_formed(full):
    page = Structure(full.to_html())
    ids = [attrs["id"] for attrs in page.all("section")]
    wanted = [
        "verdict",
        "privacy",
        "columns",
        "numbers",
        "together",
        "models",
        "attack",
        "glossary",
    ]
    assert ids == wanted
    assert [attrs["href"] for attrs in page.all("a")] == [f"#{key}" for key in wanted]
    assert len(page.all("h1")) == 1


def test_page_is_accessible(full):
    page = Structure(full.to_html())
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("img")
    assert all(attrs["alt"].strip() for attrs in page.all("img"))
    assert len(page.all("caption")) == len(page.all("table")) > 3
    assert all(attrs["scope"] in ("col", "row") for attrs in page.all("th"))


@pytest.mark.parametrize("public", [False, True])
def test_page_fetches_nothing_and_runs_nothing(full, quick, public):
    page = full.to_html()
    if public:
        page = report(None, table(80, 1), public=True).to_html()
    for _, attrs in Structure(page).tags:
        assert attrs.get("src", "data:").startswith("data:")
        assert attrs.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attrs)
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<iframe|@import|url\(", page)


def test_private_page_carries_the_banner_twice(full):
    assert full.to_html().count(BANNER) == 2


def test_report_holds_the_numbers(full):
    assert full.columns["distance"].between(0, 1).all()
    assert len(full.columns) == 4
    assert len(full.pairs) == 6
    assert set(full.utility["trained_on"]) == {"real", "synthetic"}
    assert full.attack.members.sum() == 300 == (~full.attack.members).sum()
    assert full.attack.privacy == fitted().privacy_.curve()
    assert full.privacy.plan.guarantee == (1.0, 1e-5)
    assert len(full.findings) == 12


def test_numbers_of_a_report_are_on_its_page(full):
    text = words(full.to_html())
    worst = full.columns.iloc[0]
    assert f"{100 * worst.distance:.1f}\u00a0%".replace("\u00a0", " ") in text
    assert f"{full.attack.auc.value:.3f}" in text
    assert "600" in text
    assert "300 rows that were used and 300 that were not" in text
    assert "It read all 500 synthetic rows" in text
    assert f"{full.attack.auc.cap:.3f}" in text


def test_roc_is_held_against_the_whole_curve(full):
    assert full.attack.auc.cap < auc_cap(fitted().privacy_.curve()[:1])
    shown = everything(full.to_html())
    assert "ruled out by the guarantee" in shown
    assert "-privacy<" not in shown
    assert "real and held-out rows come from one fixed split" in words(full.to_html())


@pytest.mark.parametrize("attacked", [False, True])
def test_curve_is_computed_for_an_attack_alone(quick, attacked):
    asked = []

    class Counted(Guaranteed):
        def curve(self):
            asked.append(self)
            return super().curve()

    privacy = Counted(**vars(fitted().privacy_))
    report(
        table(80, 0), table(80, 1), holdout=table(80, 2) if attacked else None,
        synthesizer=SimpleNamespace(privacy_=privacy),
    )  # fmt: skip
    assert len(asked) == attacked


def test_part_of_a_long_table_is_attacked(quick, monkeypatch):
    monkeypatch.setattr(measuring, "ATTACK_SYNTHETIC_ROWS", 60)
    result = report(table(80, 0), table(90, 1), holdout=table(80, 2))
    assert "It read 60 of the 90 synthetic rows" in words(result.to_html())


def test_columns_are_drawn_worst_first(full):
    drawn = re.findall(r"<h3>(\w+)</h3><img[^>]+>\s*<figcaption>[\d.]", full.to_html())
    assert drawn == [names[0] for names in full.columns["columns"]]
    excess = full.columns["distance"] - 1.5 * full.columns["floor"]
    assert excess.is_monotonic_decreasing


def test_same_input_gives_the_same_page():
    frames = [table(60, i)[["kind", "sick"]] for i in range(2)]
    pages = {report(*frames).to_html() for _ in range(2)}
    assert len(pages) == 1


def test_save_and_notebook(full, tmp_path):
    path = tmp_path / "page.html"
    full.save(path)
    assert path.read_text(encoding="utf-8") == full.to_html()
    frame = Structure(full._repr_html_()).all("iframe")[0]
    assert frame["srcdoc"] == full.to_html()
    assert len(repr(full)) < 100


def test_hostile_names_and_levels_stay_text(quick):
    renamed = {"kind": HOSTILE, "x": "<b>x</b>"}
    real, synthetic, holdout = (table(200, i).rename(columns=renamed) for i in range(3))
    synthetic.loc[:5, HOSTILE] = "</title><img src=x onerror=alert(1)>"
    synthetic.loc[90:, HOSTILE] = None
    result = report(
        real, synthetic, holdout=holdout, target=HOSTILE,
        synthesizer=fitted(public=(HOSTILE,)),
    )  # fmt: skip
    page = result.to_html()
    assert result.lost["column"].tolist() == [HOSTILE]
    parsed = Structure(page)
    assert not parsed.all("script")
    assert not parsed.all("b")
    assert all(attrs["src"].startswith("data:") for attrs in parsed.all("img"))
    assert HOSTILE in html.unescape(page)
    assert "<b>x</b>" not in page


# What a public page keeps to itself


def test_public_page_holds_nothing_of_real_rows():
    tables = [table(60, i)[["kind", "sick"]] for i in range(3)]
    real, holdout = (tables[i].assign(kind=SENTINEL) for i in (0, 2))
    synthetic = tables[1]
    shown = report(real, synthetic)
    assert SENTINEL in everything(shown.to_html())
    options = {"holdout": holdout, "target": "sick", "synthesizer": fitted()}
    hidden = report(real, synthetic, public=True, **options)
    assert SENTINEL not in everything(hidden.to_html())
    assert BANNER not in hidden.to_html()
    for name in ("columns", "pairs", "associations", "utility", "attack"):
        assert getattr(hidden, name) is None
    assert hidden.findings == ()
    ids = [each["id"] for each in Structure(hidden.to_html()).all("section")]
    assert ids == ["verdict", "privacy", "columns", "together", "glossary"]


def test_public_report_never_touches_the_rows(quick):
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(name)

    secret = Untouchable()
    rows = table(80, 1)
    seen = report(secret, rows, holdout=secret, target=secret, public=True)
    assert seen.to_html() == report(None, rows, public=True).to_html()


# What the verdict says


def test_copy_is_close_but_recognised(quick):
    real = table(600, 0)
    copied = report(real, real, holdout=table(300, 2))
    found = grades(copied)
    assert found.pop("attack") == "weak"
    assert set(found.values()) == {"good"}
    text = words(copied.to_html())
    assert "Dependence between columns is preserved" in text
    assert "recognises rows that were used" in text
    assert "Do not release this table." in text
    assert copied.columns["distance"].max() == 0


def test_permuted_columns_lose_dependence(quick):
    real = table(600, 0)
    shuffled = report(real, permuted(real, 0))
    found = grades(shuffled)
    assert found["columns"] == "good"
    assert found["associations"] == found["pairs"] == "weak"
    text = words(shuffled.to_html())
    assert "Dependence between columns is lost" in text
    assert "Do not study relations between columns" in text


def test_unrelated_columns_have_no_pairs_to_lose():
    topics = []
    for weight in (0.0, 2.0):
        tables = []
        for seed in (0, 1):
            x, y = np.random.default_rng(seed).normal(size=(2, 500))
            tables.append(pd.DataFrame({"x": x, "y": y + weight * x}))
        topics.append(
            set(report(*tables, random_state=0, verbose=0).summary()["topic"])
        )
    assert "pairs" not in topics[0]
    assert {"pairs", "associations"} <= topics[1]


def test_fresh_rows_are_good_throughout(full):
    assert set(grades(full).values()) == {"good"}
    assert "Everything that was measured is good." in words(full.to_html())


@pytest.mark.parametrize("public", [False, True])
def test_identifiers_are_not_judged(quick, public):
    real, holdout = table(200, 0), table(100, 1)
    synthesizer = fitted()
    synthesizer.schema_ = Schema([Column("key", "integer", role="id")])
    keyed = [
        rows.assign(key=range(start, start + len(rows)))
        for rows, start in ((real, 9000), (real, 1), (holdout, 9900))
    ]
    told = {"synthesizer": synthesizer, "public": public}
    result = report(*keyed[:2], holdout=keyed[2], target="sick", **told)
    assert "key" not in result.synthetic_associations
    told["synthesizer"] = fitted()
    assert (
        result.html == report(real, real, holdout=holdout, target="sick", **told).html
    )


def test_numbers_that_the_schema_calls_codes_are_judged_as_levels(quick):
    real, holdout = table(400, 0), table(100, 1)
    for rows in (real, holdout):
        rows["kind"] = rows["kind"].map({"low": 101, "mid": 7, "high": 53})
        rows["sick"] = (rows["sick"] == "yes").astype(int)
    fake = real[real["kind"] < 101].assign(x=real["x"].round(1))
    synthesizer = fitted()
    codes = Column("kind", "categorical", levels=[7, 53, 101])
    sick = Column("sick", "categorical", levels=[0, 1])
    synthesizer.schema_ = Schema([codes, sick])
    told = {"holdout": holdout, "target": "sick", "synthesizer": synthesizer}
    result = report(real, fake, **told)
    assert "kind" not in set(result.ranges["column"])
    assert "lacks 1 of 3 levels" in result.lost.loc[0, "loss"]
    texts = [rows.astype({"kind": str, "sick": str}) for rows in (real, fake, holdout)]
    told |= {"holdout": texts[2], "synthesizer": fitted()}
    assert grades(result) == grades(report(*texts[:2], **told))


@pytest.mark.parametrize(("share", "is_graded"), [(0.15, True), (0.3, False)])
def test_columns_that_lost_over_a_fifth_enter_no_pairs(share, is_graded, quick):
    real = table(400, 0)
    result = report(real, real.assign(x=real["x"].mask(np.arange(400) < 400 * share)))
    assert result.lost.loc[0, "share"] == pytest.approx(share)
    assert ("x" in {*result.pairs["columns"].explode()}) is is_graded
    (lost,) = (each for each in result.findings if each.topic == "lost")
    assert ("over a fifth of its values" in lost.text) is not is_graded


def test_wrong_column_is_named(quick):
    real = table(400, 0)
    most = (real["kind"] == "mid") & (np.arange(len(real)) > 40)
    result = report(real, real.assign(kind=real["kind"].mask(most, "low")))
    assert grades(result)["worst column"] == "weak"
    text = words(result.to_html())
    assert "The column furthest beyond chance is kind" in text
    assert "Do not rely on kind." in text
    assert "weakest: means by group (x and kind)" in repr(result)


def test_rows_that_cannot_be_used_are_refused_at_once(monkeypatch):
    measured = []
    monkeypatch.setattr(measuring, "lost_values", lambda *tables: measured.append(1))
    holdout = table(100, 2).assign(sick="yes")
    with pytest.raises(ValueError, match="needs two classes in real_test"):
        report(table(100, 0), table(100, 1), holdout=holdout, target="sick")
    assert not measured


def test_columns_that_lost_values_come_first(quick):
    rng = np.random.default_rng(0)
    real = table(400, 0).assign(
        zip=[f"{code:05d}" for code in rng.integers(0, 300, 400)],
        day=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(400), unit="D"),
    )
    fake = real.assign(zip=None, kind="low", day=real["day"].iloc[0])
    fake.loc[:99, "sick"] = None
    result = report(real, fake, random_state=1)
    assert result.lost["column"].tolist()[0] == "zip"
    assert set(result.lost["column"]) == {"zip", "kind", "day", "sick"}
    assert result.findings[0].topic == "lost"
    assert grades(result)["lost"] == "weak"
    printed = str(result).splitlines()
    assert "weakest: lost (zip" in printed[0]
    assert printed[1] == "Columns that lost values:"
    assert printed[2].startswith("  zip is missing in all synthetic rows, in 0.0")
    text = words(result.to_html())
    assert "The table has a weak point: values that were lost. Leave out zip" in text
    assert text.index("Columns that lost values") < text.index("What is good")
    assert "is always 2020-01-01, as under 1" not in text
    assert "is always 2020-01-01, as 0.2" in text
    assert "is missing in 25.0" in text
    drawn = re.findall(r"<h3>(\w+)</h3><img", result.to_html())
    assert drawn[:4] == result.lost["column"].tolist()


@pytest.mark.parametrize("place", [0, 2])
def test_a_column_that_was_not_released_is_named_once(quick, place):
    """A zip column made the verdict "Do not cross-tabulate this table"."""
    real, fake = table(600, 0), table(500, 1)
    without = report(real, fake)
    real.insert(place, "zip", [f"z{i % 200}" for i in range(600)])
    fake.insert(place, "zip", ["z1", *["other"] * 499])
    result = report(real, fake)
    lost, *rest = result.findings
    assert (lost.topic, lost.grade, lost.about) == ("lost", "weak", ("zip",))
    assert "enters no grade of columns, pairs or associations" in lost.text
    assert rest == list(without.findings)
    assert "zip" not in result.associations.real
    assert len(result.columns) == 5
    assert "drawn at random" not in words(result.to_html())


def test_a_table_that_lost_every_column_is_graded(quick):
    real = table(200, 0)[["kind", "sick"]]
    result = report(real, real.assign(kind="other", sick="other"))
    assert result.summary()["grade"].tolist().count("weak") >= 3
    assert len(result.pairs) == 1
    one = report(real[["kind"]], real[["kind"]].assign(kind="other"))
    assert grades(one)["worst column"] == "weak"


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_one_population_lose_nothing(seed):
    heavy = [
        table(n, 2 * seed + i).assign(
            income=np.random.default_rng([seed, i]).pareto(1.0, n),
            name=[f"person {k}" for k in range(n)],
        )
        for i, n in enumerate((600, 900))
    ]
    resampled = heavy[0].sample(600, replace=True, random_state=seed)
    assert lost_values(heavy[0], resampled).empty
    assert changed_ranges(heavy[0], resampled).empty
    assert changed_ranges(*heavy).empty


def test_ranges_that_end_elsewhere_are_told(quick):
    rng = np.random.default_rng(0)
    real = pd.DataFrame(
        {
            "balance": rng.pareto(2.0, 2000),
            "flag": rng.integers(0, 2, 2000),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 999, 2000), unit="D"),
        }
    )
    fake = real.assign(balance=real["balance"].clip(upper=3.0))
    fake.loc[:19, "flag"] = 2
    fake["day"] = fake["day"].clip(lower=pd.Timestamp("2021-01-01"))
    result = report(real, fake)
    told = result.ranges.set_index("column")["loss"]
    assert told["balance"].startswith("ends at 3, not ")
    assert told["flag"].startswith("ends at 2, not 1 (1.0")
    assert told["day"].startswith("begins at 2021-01-01, not 2020-01-0")
    assert result.lost.empty
    assert grades(result)["range"] == "weak"
    text = words(result.to_html())
    assert "Columns whose range differs from the real one: day begins at" in text
    assert "  flag ends at 2, not 1" in str(result)


def test_ends_of_millions_are_written_out():
    real = pd.DataFrame({"bytes": np.linspace(0, 1_288_652, 900)})
    (text,) = changed_ranges(real, real.clip(upper=34_547))["loss"]
    assert text.startswith("ends at 34,547, not 1,288,652 (")


def test_losses_of_odd_columns_are_told_or_none():
    real = pd.DataFrame(
        {
            "empty": [None] * 60, "number": np.arange(60.0), "gaps": [None, 1.0] * 30,
            "level": list("abcdef") * 10, "infinite": [np.inf, -np.inf] * 30,
        }
    )  # fmt: skip
    fake = real.assign(number=np.nan, gaps=1.0, level=list("abcabc") * 10)
    told = lost_values(real, fake).set_index("column")["loss"]
    assert told["number"].startswith("is missing in all synthetic rows")
    assert told["gaps"].startswith("is never missing, as 50.0")
    assert told["level"].startswith("lacks 3 of 6 levels, those of 50.0")
    assert set(told.index) == {"number", "gaps", "level"}
    assert changed_ranges(real, fake).empty


def test_models_that_learn_noise_are_weak(quick):
    real, holdout = table(400, 0), table(300, 2)
    result = report(real, permuted(real, 0), holdout=holdout, target="sick")
    assert grades(result)["models"] == "weak"
    assert "Do not train models on this table." in words(result.to_html())


def test_regression_target_is_scored_by_r2(quick):
    real, synthetic, holdout = table(200, 0), table(200, 1), table(200, 2)
    result = report(real, synthetic, holdout=holdout, target="x")
    assert "r2" in result.utility
    assert "R\u00b2" in words(result.to_html())


def test_what_cannot_be_judged_is_said(quick):
    real = table(100, 0)
    text = words(report(real, real).to_html())
    assert "models (needs a target column and held-out real rows)" in text
    assert "resistance to an attack (needs held-out real rows)" in text
    noise = np.random.default_rng(0).random((3, 200, 2))
    frames = [pd.DataFrame(each, columns=["a", "b"]) for each in noise]
    text = words(report(frames[0], frames[1], holdout=frames[2], target="a").to_html())
    assert "on real rows they hardly do better than guessing" in text
    assert "On average the real columns are hardly related" in text


def test_one_column_has_no_pairs(quick):
    real = table(100, 0)[["kind"]]
    result = report(real, real)
    assert result.pairs is None
    assert "pairs of columns (there is one column)" in words(result.to_html())


def test_many_columns_are_cut_to_the_worst(quick, monkeypatch):
    monkeypatch.setattr(page_module, "MAX_PICTURES", 2)
    real = table(100, 0)
    page = report(real, real.assign(kind="low")).to_html()
    assert "Of 4 columns, the 2 furthest beyond chance are shown." in words(page)
    assert ">kind</h3>" in page


def test_broken_guarantee_is_called_out(quick):
    real, holdout = table(200, 0), table(200, 2)
    result = report(real, real, holdout=holdout, synthesizer=fitted(0.1))
    text = words(result.to_html())
    assert "more than the guarantee allows" in text
    assert grades(result)["attack"] == "weak"


@pytest.mark.parametrize(
    ("synthesizer", "said"),
    [
        (None, "Privacy is unknown."),
        (fitted(None), "There is no privacy."),
        (fitted(1.0), "The privacy guarantee is strong"),
        (fitted(8.0), "The privacy guarantee is moderate"),
        (fitted(50.0), "The privacy guarantee is weak"),
        (fitted(2000.0), "There is no privacy. A guarantee with"),
    ],
)
@pytest.mark.parametrize("public", [True, False])
def test_privacy_is_stated_plainly(quick, synthesizer, said, public):
    rows = table(80, 0)[["kind"]]
    page = report(rows, rows, synthesizer=synthesizer, public=public).to_html()
    assert said in words(page)
    loud = "No privacy: the synthetic table itself was made without noise"
    assert (loud in page) == (said == "There is no privacy.")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-5), (2.0, 0.05), (700.0, 0.1)])
def test_best_guess_is_the_corner_of_the_cap(epsilon, delta):
    fpr = np.linspace(0, 1, 20_001)
    cap = roc_cap(fpr, ((epsilon, delta),))
    slow = ((cap + 1 - fpr) / 2).max()
    assert findings.best_guess(epsilon, delta) == pytest.approx(slow, abs=1e-4)


@pytest.mark.parametrize("public", [True, False])
def test_the_guarantee_is_the_one_to_a_person(quick, public):
    """Of a plan for one row of four, the page said a quarter of the epsilon."""
    real, synthetic, holdout = (table(80, i) for i in range(3))
    options = {"synthesizer": fitted(4.0, k=4), "public": public}
    result = report(real, synthetic, holdout=holdout, **options)
    text = words(result.to_html())
    assert "\u03b5 = 4, \u03b4 = 1e-05" in text
    assert "The privacy guarantee is moderate (\u03b5 = 4)" in text
    assert "tries to tell whether one person, with up to 4 rows, was in" in text
    assert "98.2" in text  # of a hundred guesses, 1 / (1 + exp(-4))
    assert "A person with more rows is protected less." in text
    assert "\u03b5 = 1" not in text
    assert "one more row" not in text
    if not public:
        assert result.attack.privacy[0] == pytest.approx((4.0, 1e-5))
        assert "if a coin had decided person by person whose rows were used" in text
        assert "for all of a person's rows, up to 4;" in text
        assert "a change of two persons" in text


@pytest.mark.parametrize(
    ("value", "grade"), [(0.0, "good"), (0.1, "good"), (0.11, "fair"), (0.3, "fair"),
                         (0.31, "weak"), (9.0, "weak"), (-1.0, "good")],
)  # fmt: skip
def test_limits_cut_into_grades(value, grade):
    assert findings.grade(findings.severity(value, (0.1, 0.3))) == grade


def test_unfit_input_is_refused():
    rows = table(80, 0)
    with pytest.raises(ValueError, match="needs real unless public"):
        report(None, rows)
    with pytest.raises(ValueError, match="must be fitted"):
        report(rows, rows, synthesizer=SimpleNamespace())
    with pytest.raises(ValueError, match="'target' of report must be one of"):
        report(rows, rows, target="none")
    with pytest.raises(ValueError, match="synthetic must have the columns of real"):
        report(rows, rows[["x"]])
    with pytest.raises(ValueError, match="holdout must have the columns"):
        report(rows, rows, holdout=rows[["x"]])
    with pytest.raises(TypeError, match="DataFrame"):
        report(None, rows.to_numpy(), public=True)


def test_a_few_rows_held_out_of_many_are_looked_for_in_all_of_them():
    real = pd.DataFrame(np.random.default_rng(0).normal(size=(1000, 3)))
    with pytest.raises(ValueError, match="of the rows of holdout are rows of real"):
        report(real, real, holdout=real.head(50))


@pytest.mark.thorough
@pytest.mark.parametrize(("strength", "expected"), [(0.5, "fair"), (0.7, "weak")])
def test_one_relation_lost_among_many_unrelated_columns_is_seen(strength, expected):
    rng = np.random.default_rng(0)
    real = pd.DataFrame(rng.normal(size=(1200, 10))).rename(columns=str)
    real["1"] = strength * real["0"] + np.sqrt(1 - strength**2) * real["1"]
    shuffled = report(real, permuted(real, 0))
    found = {each.topic: each for each in shuffled.findings}
    assert found["associations"].grade == "fair"  # one pair of 45
    worst = found["worst association"]
    assert (worst.grade, set(worst.about)) == (expected, {"0", "1"})
    again = report(real, real.sample(1200, replace=True, random_state=1))
    assert grades(again)["worst association"] == "good"


@pytest.mark.skipif(
    pd.__version__ >= "3",
    reason="Arrow, which pandas 3 keeps names of columns in, has no lone surrogates",
)
def test_lone_surrogates_are_question_marks_on_the_page_and_in_files(tmp_path):
    levels = ["a\ud800b", "\udfff", "c"]

    def rows(n, seed):
        text, name, codes = np.random.default_rng(seed).integers(3, size=(3, n))
        words = np.array(levels, object)
        level = pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))
        names = pd.Index(["text", "\ud801"], dtype=object)
        cells = np.stack([words[text], words[name]], axis=1)
        frame = pd.DataFrame(cells, columns=names, dtype=object)
        return frame.assign(level=level)

    real, holdout = rows(200, 0), rows(100, 1)
    stated = [Column(name, "categorical", levels=levels) for name in real]
    model = DPHFlowSynthesizer(epsilon=None, n_steps=0, schema=Schema(stated))
    sample = model.fit(real).sample(200)
    found = report(real, sample, holdout=holdout, synthesizer=model)
    found.save(tmp_path / "page.html")
    for text in (found, model.privacy_, forecast(model.schema, 100), repr(found)):
        str(text).encode()
    assert "a?b" in base64_texts(found.html)
    for suffix, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        model.sample_to(tmp_path / f"sample.{suffix}", 50)
        written = read(tmp_path / f"sample.{suffix}")
        assert list(written) == ["text", "?", "level"]
        for name in written:
            assert set(written[name]) == {"a?b", "?", "c"}


def base64_texts(page):
    """Return the pictures of a page."""
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    return "".join(base64.b64decode(each).decode() for each in pictures)


def test_a_lost_relation_shows_beside_columns_of_many_levels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    real = pd.DataFrame({"x": x, "y": 0.8 * x + 0.6 * rng.normal(size=2000)})
    real["zip"] = rng.integers(0, 300, 2000).astype(str)
    fake = real.assign(y=rng.permutation(real["y"]))
    for table, grades in ((fake, {"weak"}), (real.sample(frac=1), {"good"})):
        judged = {each.topic: each for each in report(real, table).findings}
        worst = judged["worst association"]
        assert {worst.grade, judged["associations"].grade} == grades
    assert {*judged} >= {"pairs", "worst association"}


def test_a_page_of_unrelated_columns_says_why_pairs_are_not_judged():
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(400, 4)), columns=[*"abcd"]) for _ in "12"]
    page = words(report(*tables).to_html())
    assert "the real ones are not related beyond chance" in page
