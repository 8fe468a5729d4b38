"""The command ``dpgenerative``: fit, sample, report, schema, check, forecast."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dpgenerative._files import atomic_write, require_place
from dpgenerative._texts import conditions, texts_by_name, value_of
from dpgenerative._validation import check_option
from dpgenerative._version import __version__

# Commands import what they need, so that --help is there at once.
if TYPE_CHECKING:
    from dpgenerative.tables.drafts import SchemaFile

OWN_OPTIONS = ("epsilon", "noise_multiplier", "delta", "schema", "verbose")
"""Parameters that have options of their own, and are not for --set."""
BAD_INPUT, UNEXPECTED, INTERRUPTED = 2, 1, 130


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        None: those of the command line.

    Returns
    -------
    int
        0 where all went well, 2 for wrong usage or input, 130 where it was
        interrupted (Ctrl-C), 1 for anything unexpected.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    usual = warnings.formatwarning
    warnings.formatwarning = lambda what, *_: _one_line(f"warning: {what}")
    try:
        for module in options.modules:
            importlib.import_module(module)
        options.run(options)
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        return _failed(options.debug, error, BAD_INPUT, str(error))
    except KeyboardInterrupt as error:
        what = "interrupted"
        file = getattr(options, "checkpoint", None)
        if file is not None and os.path.exists(file):
            what += f"; the same command goes on from {file}, which is private"
        return _failed(options.debug, error, INTERRUPTED, what)
    except Exception as error:
        what = f"unexpected {type(error).__name__}; --debug shows where, with values"
        return _failed(options.debug, error, UNEXPECTED, what)
    finally:
        warnings.formatwarning = usual
    return 0


def _failed(debug: bool, error: BaseException, code: int, message: str) -> int:
    if debug:
        raise error
    sys.stderr.write(_one_line(message))
    return code


def _one_line(message: str) -> str:
    return f"dpgenerative: {' '.join(message.split())}\n"


# Commands -----------------------------------------------------------------------------


def fit(options: argparse.Namespace) -> None:
    """Fit a synthesizer to a table and save it."""
    from dpgenerative.tables.files import stream_table

    _check_output(options)
    checkpoint = options.checkpoint
    if checkpoint and os.path.realpath(checkpoint) == os.path.realpath(options.output):
        raise ValueError("--checkpoint and --output must name two files.")
    model, parameters = _model(options)
    facts = _facts(options)
    how = facts.schema, facts.csv, facts.without
    rows: Any = stream_table(options.data, *how)
    if options.people is not None:
        rows = stream_table(options.people, *how), rows
    public = None if options.public is None else stream_table(options.public, *how)
    synthesizer = model(
        epsilon=options.epsilon, delta=options.delta, schema=facts.schema
    ).set_params(**parameters)
    synthesizer.verbose = not options.quiet  # no parameter of every registered class
    try:
        synthesizer.fit(rows, public=public, checkpoint=checkpoint)
    finally:
        if hasattr(synthesizer, "privacy_"):  # also where its warnings are errors
            synthesizer.save(options.output)
    _say(synthesizer.privacy_)


def sample(options: argparse.Namespace) -> None:
    """Draw rows and write them, part by part."""
    from dpgenerative.synthesizers import load
    from dpgenerative.synthesizers.session import layout_of
    from dpgenerative.tables.files import suffix_of

    _check_output(options)
    suffix_of(options.output)
    synthesizer = load(options.model)
    _require_tables(synthesizer, options)
    if options.n_samples < 1:
        raise ValueError(f"-n must be at least 1; got {options.n_samples}.")
    seed = options.random_state
    seed = secrets.randbits(31) if seed is None else seed
    given = conditions(synthesizer.schema_, options.given)
    if not options.copies:
        path: Any = options.output
        if bool(layout_of(synthesizer).people) != (options.people is not None):
            rule = "goes with a model of people and their rows, and only with one"
            raise ValueError(f"--people, a file to write, {rule}.")
        if options.people is not None:
            _check_output(options, options.people)
            path = options.people, path
        synthesizer.sample_to(path, options.n_samples, seed, given=given)
        return
    has_people = options.people or layout_of(synthesizer).people
    if given or has_people or options.copies < 2:
        rule = "takes a number of at least 2, no --given, and no model of two tables"
        raise ValueError(f"--copies {rule}.")
    from dpgenerative.inference.copies import copies_to

    paths = _copies(options)
    copies_to(paths, synthesizer, options.n_samples, options.jobs, seed)
    _say(f"Written to {paths[0]}, and {options.copies} copies to {paths[1]}, ...")


def report(options: argparse.Namespace) -> None:
    """Print what a fit released; compare with real rows where they are given."""
    for name in ("holdout", "target", "refits", "output"):
        if options.real is None and getattr(options, name):
            raise ValueError(f"--{name} needs --real.")
    if options.real is not None and options.output is None:
        raise ValueError("--real needs --output, the page to write.")
    if options.target is not None and options.holdout is None:
        raise ValueError("--target needs --holdout, rows to test the models on.")
    from dpgenerative.synthesizers import load

    synthesizer = load(options.model)
    if options.real is None:
        _say(synthesizer.privacy_)
        return
    _require_tables(synthesizer, options)
    _check_output(options)
    from dpgenerative.metrics import report as evaluate
    from dpgenerative.synthesizers.session import frame_drawn, layout_of
    from dpgenerative.tables.files import read_as_written

    facts, form = synthesizer.schema_, _facts(options).csv
    people, unit = layout_of(synthesizer).people if options.people else (), facts.unit
    own = facts.without([name for name in people if name != unit])
    files = options.real, options.holdout
    tables: list[Any] = [f and read_as_written(f, own, form) for f in files]
    n = len(tables[0]) if unit is None else tables[0][unit].nunique()
    if people:
        rest = facts.without([name for name in facts.names if name not in people])
        first = read_as_written(options.people, rest, form)
        tables = [None if rows is None else (first, rows) for rows in tables]
    real, holdout = tables
    page = evaluate(
        real,
        frame_drawn(synthesizer, n, options.random_state),
        holdout=holdout,
        target=options.target,
        synthesizer=synthesizer,
        intervals=_intervals(synthesizer, options),
        verbose=not options.quiet,
    )
    with atomic_write(options.output) as draft:
        page.save(draft)
    _say(page)
    _say(f"Written to {options.output}, which describes real rows: not for release.")


def schema(options: argparse.Namespace) -> None:
    """Draft a schema for a person to edit."""
    from dpgenerative.tables.drafts import draft_schema

    _check_output(options)
    draft = draft_schema(options.data, _facts(options).csv, not options.quiet)
    with atomic_write(options.output) as file:
        text = json.dumps(draft, indent=2, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")
    _say(draft["read me"])


def check(options: argparse.Namespace) -> None:
    """Count the entries that a schema would change; for the owner of the rows only."""
    from dpgenerative.tables.files import misfits_of
    from dpgenerative.tables.schema import tabulated

    if options.output is not None:
        _check_output(options)
    facts = _facts(options)
    how = facts.schema, facts.csv, facts.without, options.people is not None
    misfits: list[Any] = []
    for path in filter(None, (options.people, options.data)):
        problems, n_rows = misfits_of(path, *how)
        for each in tabulated(problems, n_rows).itertuples():
            examples = ", ".join(map(repr, each.examples))
            share = f"{each.count:,} rows ({100 * each.share:.3g} %)"
            _say(f"{each.column}: {each.problem} in {share}, such as {examples}")
        misfits += problems
    _say("These are values of the rows: not for release." if misfits else "All fits.")
    if options.output is not None:
        with atomic_write(options.output) as file:
            tabulated(misfits, None).to_csv(file, index=False)


def forecast(options: argparse.Namespace) -> None:
    """Say what a fit would release, and with which noise; spends nothing."""
    from dpgenerative.synthesizers.forecast import forecast as make_forecast
    from dpgenerative.tables.drafts import read_schema

    facts, (_, parameters) = read_schema(options.schema).schema, _model(options)
    stated = facts, options.rows, options.epsilon, options.delta
    ahead = make_forecast(*stated, model=options.model, **parameters)
    _say(ahead)
    if options.errors:
        _say("Standard errors of means and shares (people: of as many real rows):")
        errors = ahead.expected_errors(random_state=0)
        _say(errors.to_string(index=False, float_format="{:.3g}".format))


# Parts of commands --------------------------------------------------------------------


def _check_output(options: argparse.Namespace, path: Any = None) -> None:
    """Refuse a place that cannot be written, before a budget is spent."""
    target = require_place(options.output if path is None else path)
    if target.exists() and not options.force:
        raise FileExistsError(f"{target} exists; --force replaces it.")


def _copies(options: argparse.Namespace) -> list[Path]:
    """Return the files of a table and its copies, none of which is there."""
    path, numbers = Path(options.output), range(1, options.copies + 1)
    paths = [path, *(path.with_stem(f"{path.stem}-{i}") for i in numbers)]
    for each in paths:
        _check_output(options, each)
    return paths


def _intervals(synthesizer: Any, options: argparse.Namespace) -> Any:
    """Return means and shares with intervals, if refits are asked for."""
    if not options.refits:
        return None
    from dpgenerative.inference import bootstrap, means_and_shares

    return bootstrap(
        synthesizer, means_and_shares, options.refits, n_jobs=options.jobs,
        random_state=options.random_state, verbose=not options.quiet,
    )  # fmt: skip


def _require_tables(synthesizer: Any, options: argparse.Namespace) -> None:
    from dpgenerative.synthesizers.tables import BaseTableSynthesizer

    if not isinstance(synthesizer, BaseTableSynthesizer):
        raise ValueError(
            f"{options.model} holds a {type(synthesizer).__name__}, no model of "
            "tables: use it in Python, by dpgenerative.load."
        )


def _model(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return a synthesizer's class, and parameters of it from name=value."""
    from dpgenerative.synthesizers.forecast import MODELS

    check_option("fit", "--model", options.model, list(MODELS))
    model: Any = MODELS[options.model]
    allowed = set(model().get_params()) - set(OWN_OPTIONS)
    texts = texts_by_name("--set", options.set, allowed)
    parameters = {name: value_of(text) for name, text in texts.items()}
    if options.noise_multiplier is not None:
        parameters["noise_multiplier"] = options.noise_multiplier
    return model, parameters


def _facts(options: argparse.Namespace) -> SchemaFile:
    """Return what the file of a schema states, changed by the options of CSV files."""
    from dpgenerative.tables.drafts import SchemaFile, read_schema
    from dpgenerative.tables.schema import Schema

    path = getattr(options, "schema", None)
    facts = SchemaFile(Schema([])) if path is None else read_schema(path)
    stated = {name: getattr(options, name) for name in facts.csv.__dataclass_fields__}
    stated = {name: value for name, value in stated.items() if value is not None}
    return replace(facts, csv=replace(facts.csv, **stated))


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")


# Options ------------------------------------------------------------------------------


def number(text: str) -> float | None:
    """Read a budget."""
    return None if text.lower() == "none" else float(text)


def seed(text: str) -> int:
    """Read a seed of numpy's generators."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise ValueError
    return value


Option = tuple[tuple[str, ...], dict[str, Any]]


def _option(*names: str, **settings: Any) -> Option:
    """Return what `add_argument` takes."""
    return names, settings


def _output(what: str, required: bool = True) -> tuple[Option, Option]:
    return (
        _option("-o", "--output", required=required, help=what),
        _option("--force", action="store_true", help="replace what is there"),
    )


_CSV = (
    _option("--sep", help="default that of the schema's file, or comma; tab for tabs"),
    _option("--encoding", help="default that of the schema's file, or utf-8"),
    _option("--decimal", choices=[".", ","], help="default likewise, or a point"),
    _option("--na", action="append", help="an entry that means missing; repeatable"),
    _option("--date-format", help='default likewise, or ISO 8601; "%%d.%%m.%%Y"'),
)
_BUDGET = ("--epsilon", "--noise-multiplier")
"""Options of which one has to be there."""
_NOISE = _option(
    "--noise-multiplier", type=float, metavar="Z",
    help="of gradients, in place of epsilon, which is then reported",
)  # fmt: skip
_DELTA = _option("--delta", type=float, default=1e-5, help="default 1e-5")
_MODEL_FILE = _option("model", help="a model file")
_JOBS = _option("--jobs", type=int, default=1, help="refits at the same time")
_QUIET = _option("--quiet", action="store_true", help="no progress bar")
_MODEL = (
    _option("--model", default="flow", help="flow (default), vae or a registered one"),
    _option(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="any other parameter of the synthesizer; may be repeated",
    ),
)  # fmt: skip
COMMANDS: dict[Callable[[argparse.Namespace], None], tuple[Option, ...]] = {
    fit: (
        *_output("the model file to write"),
        _option(
            "data",
            help="private rows, .csv (also .gz, .bz2, .xz) or .parquet; for Parquet "
            "also a folder or a glob",
        ),
        *_CSV,
        _option("--epsilon", type=number, default=1.0, help="budget, or none"),
        _NOISE,
        _DELTA,
        _option("--schema", help="JSON file of public facts; see schema"),
        _option("--public", help="rows that need no protection"),
        _option("--people", help="private people, of whom data holds the rows"),
        *_MODEL,
        _option(
            "--checkpoint", metavar="FILE",
            help="go on from FILE after an interruption; as private as the rows",
        ),
        _QUIET,
    ),
    sample: (
        *_output("the table to write, .csv or .parquet"),
        _MODEL_FILE,
        _option("-n", "--n-samples", type=int, required=True,
                help="number of rows, or of people"),
        _option("--people", help="the file of people to write, if they were fitted"),
        _option("--random-state", type=seed, help="for the same rows again"),
        _option(
            "--given", action="append", default=[], metavar="NAME=VALUE",
            help="only rows of this value, [values], (low, high) or None; repeatable",
        ),
        _option("--copies", type=int, default=0, metavar="M",
                help="also M tables of refits, which show how far to trust results"),
        _JOBS,
    ),
    report: (
        *_output("the page to write, with --real", required=False),
        _MODEL_FILE,
        _option("--real", help="the rows that were fitted"),
        _option("--people", help="the people that were fitted, in a file of their own"),
        _option("--schema", help="its file, which says how CSV files are written"),
        *_CSV,
        _option("--holdout", help="real rows that were not fitted"),
        _option("--target", help="column that models are to predict"),
        _option("--random-state", type=seed, default=0, help="default 0"),
        _option("--refits", type=int, help="for intervals of means and shares; try 20"),
        _JOBS,
        _QUIET,
    ),
    schema: (
        *_output("the JSON file to write"),
        _option("data", help="rows, .csv (also .gz, .bz2, .xz) or .parquet"),
        *_CSV,
        _QUIET,
    ),
    check: (
        *_output("a CSV file for all these entries", required=False),
        _option("data", help="rows, .csv (also .gz, .bz2, .xz) or .parquet"),
        *_CSV,
        _option("--people", help="people, of whom data holds the rows"),
        _option("--schema", required=True, help="JSON file of public facts"),
    ),
    forecast: (
        _option("schema", help="JSON file of public facts; see schema"),
        _option("--rows", type=int, required=True, help="roughly how many rows"),
        _option("--epsilon", type=float, default=1.0, help="budget"),
        _NOISE,
        _DELTA,
        *_MODEL,
        _option("--errors", action="store_true", help="also of means and shares"),
    ),
}  # fmt: skip
"""Commands and their options."""


def _parser() -> Parser:
    about = "Differentially private synthetic tables, on files."
    parser = Parser(prog="dpgenerative", description=about)
    debug = "show where an error came from, and perhaps values of rows"
    parser.add_argument("--debug", action="store_true", help=debug)
    parser.add_argument(
        "--import", action="append", default=[], metavar="MODULE", dest="modules",
        help="run a module that registers models of your own; repeatable",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="command", required=True)
    for run, options in COMMANDS.items():
        text = inspect.getdoc(run)
        command = commands.add_parser(run.__name__, help=text, description=text)
        command.set_defaults(run=run)
        budget: Any = command
        if _NOISE in options:  # Before Python 3.13 an empty group breaks --help.
            budget = command.add_mutually_exclusive_group(required=True)
        for names, settings in options:
            place = budget if names[0] in _BUDGET else command
            place.add_argument(*names, **settings)
    return parser
