"""The command ``dpgenerative``: fit, sample, report, schema, forecast, on files."""

from __future__ import annotations

import argparse
import ast
import codecs
import inspect
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dpgenerative._files import atomic_write

# Commands import what they need, so that --help is there at once.
if TYPE_CHECKING:
    import pandas as pd

    from dpgenerative.tables.files import CsvFormat
    from dpgenerative.tables.schema import Schema

MODELS = {"flow": "DPHFlowSynthesizer", "vae": "DPVAESynthesizer"}
OWN_OPTIONS = ("epsilon", "delta", "schema", "verbose")
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
    try:
        options.run(options)
    except (ValueError, TypeError, OSError) as error:
        return _failed(options, error, BAD_INPUT, str(error))
    except KeyboardInterrupt as error:
        what = "interrupted"
        kept = getattr(options, "checkpoint", None)
        if kept is not None and os.path.exists(kept):
            what += f"; the same command goes on from {kept}, which is private"
        return _failed(options, error, INTERRUPTED, what)
    except Exception as error:
        what = f"unexpected {type(error).__name__}; --debug shows where, with values"
        return _failed(options, error, UNEXPECTED, what)
    return 0


def _failed(
    options: argparse.Namespace, error: BaseException, code: int, message: str
) -> int:
    if options.debug:
        raise error
    sys.stderr.write(f"dpgenerative: {' '.join(message.split())}\n")
    return code


# Commands -----------------------------------------------------------------------------


def fit(options: argparse.Namespace) -> None:
    """Fit a synthesizer to a table and save it."""
    from dpgenerative import synthesizers
    from dpgenerative.tables.files import read_table
    from dpgenerative.tables.schema import Schema

    _check_output(options)
    if options.checkpoint and os.path.realpath(options.checkpoint) == os.path.realpath(
        options.output
    ):
        raise ValueError("--checkpoint and --output must name two files.")
    model = getattr(synthesizers, MODELS[options.model])
    parameters = _parameters(model, options.set)
    schema = Schema([]) if options.schema is None else _read_schema(options.schema)
    form = _csv_format(options)
    frame = read_table(options.data, schema, form=form)
    public = None
    if options.public is not None:
        public = read_table(options.public, schema, form=form)
    synthesizer = model(
        epsilon=options.epsilon,
        delta=options.delta,
        schema=schema,
        verbose=not options.quiet,
        **parameters,
    )
    synthesizer.fit(frame, public=public, checkpoint=options.checkpoint)
    synthesizer.save(options.output)
    _say(synthesizer.privacy_)


def sample(options: argparse.Namespace) -> None:
    """Draw rows and write them, part by part."""
    from dpgenerative.synthesizers import load
    from dpgenerative.tables.files import suffix_of, write_table

    _check_output(options)
    suffix = suffix_of(options.output)
    synthesizer = load(options.model)
    if options.n_samples < 1:
        raise ValueError(f"-n must be at least 1; got {options.n_samples}.")
    given = _given(synthesizer.schema_, options.given)
    parts = _sampled(synthesizer, options.n_samples, options.random_state, given)
    with atomic_write(options.output) as draft:
        write_table(parts, draft, suffix)


def report(options: argparse.Namespace) -> None:
    """Print what a fit released; compare with real rows where they are given."""
    needs = [n for n in ("holdout", "target", "output") if getattr(options, n)]
    if options.real is None and needs:
        raise ValueError(f"--{needs[0]} needs --real.")
    if options.real is not None and options.output is None:
        raise ValueError("--real needs --output, the page to write.")
    from dpgenerative.synthesizers import load

    synthesizer = load(options.model)
    if options.real is None:
        _say(synthesizer.privacy_)
        return
    _check_output(options)
    from dpgenerative.metrics import report as evaluate
    from dpgenerative.tables.files import read_as_written

    facts, form = synthesizer.schema_, _csv_format(options)
    real, holdout = read_as_written(options.real, facts, form), None
    if options.holdout is not None:
        holdout = read_as_written(options.holdout, facts, form)
    page = evaluate(
        real,
        _joined(synthesizer, len(real), options.random_state),
        holdout=holdout,
        target=options.target,
        synthesizer=synthesizer,
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
    draft = draft_schema(options.data, _csv_format(options))
    with atomic_write(options.output) as file:
        text = json.dumps(draft, indent=2, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")
    _say(draft["read me"])


def forecast(options: argparse.Namespace) -> None:
    """Say what a fit would release, and with which noise; spends nothing."""
    from dpgenerative import synthesizers
    from dpgenerative.synthesizers.forecast import forecast as look_ahead

    model = getattr(synthesizers, MODELS[options.model])
    _say(
        look_ahead(
            _read_schema(options.schema), options.rows, options.epsilon, options.delta,
            model=options.model, **_parameters(model, options.set),
        )
    )  # fmt: skip


# Parts of commands --------------------------------------------------------------------


def _check_output(options: argparse.Namespace) -> None:
    """Refuse a place that cannot be written, before a budget is spent."""
    target = Path(options.output)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, not a file.")
    if target.exists() and not options.force:
        raise FileExistsError(f"{target} exists; --force replaces it.")
    if not os.access(target.absolute().parent, os.W_OK):
        raise FileNotFoundError(
            f"{target} cannot be written: no such folder, or no right."
        )


def _parameters(model: type, settings: Sequence[str]) -> dict[str, Any]:
    """Return constructor parameters from name=value."""
    allowed = set(inspect.signature(model).parameters) - set(OWN_OPTIONS)
    return _settings("--set", settings, allowed)


def _settings(
    option: str, settings: Sequence[str], allowed: Iterable[str]
) -> dict[str, Any]:
    """Return the values of name=value: Python's literals, or else text."""
    names, found = sorted(allowed), {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in names:
            raise ValueError(
                f"{option} takes name=value, with a name out of {names}; got "
                f"{setting!r}."
            )
        try:
            found[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            found[name] = text
    return found


def _given(schema: Schema, settings: Sequence[str]) -> dict[Any, Any] | None:
    """Return conditions by column; a level may be written as its text."""
    names = {str(name): name for name in schema.names}
    given = {}
    for name, value in _settings("--given", settings, names).items():
        levels = {str(level): level for level in schema[names[name]].levels or ()}
        given[names[name]] = levels.get(str(value), value)
    return given or None


def _csv_format(options: argparse.Namespace) -> CsvFormat:
    from dpgenerative.tables.files import CsvFormat

    return CsvFormat(
        options.sep, options.encoding, options.decimal, tuple(options.na),
        options.date_format,
    )  # fmt: skip


def _read_schema(path: str) -> Schema:
    from dpgenerative.tables.drafts import unmarked_schema

    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}.") from None
    return unmarked_schema(facts, path)


def _joined(
    synthesizer: Any, n: int, random_state: int, given: Any = None
) -> pd.DataFrame:
    """Return a sample as one frame, y last."""
    from dpgenerative.tables.containers import as_table

    rows = synthesizer.sample(n, random_state=random_state, given=given)
    pair = rows if isinstance(rows, tuple) else (rows,)
    return as_table("sample", *pair)[0]


def _sampled(
    synthesizer: Any, n: int, seed: int | None, given: Any
) -> Iterator[pd.DataFrame]:
    """Yield n rows in parts; the first part is what `sample` gives for the seed."""
    import numpy as np

    from dpgenerative.synthesizers.base import SAMPLE_CHUNK

    seed = secrets.randbits(31) if seed is None else seed
    later = np.random.SeedSequence(seed).spawn(-(-n // SAMPLE_CHUNK) - 1)
    seeds = [seed, *(int(s.generate_state(1)[0]) for s in later)]
    for i, part_seed in enumerate(seeds):
        size = min(SAMPLE_CHUNK, n - i * SAMPLE_CHUNK)
        yield _joined(synthesizer, size, part_seed, given)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")


# Options ------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(
        prog="dpgenerative",
        description="Differentially private synthetic tables, on files.",
    )
    parser.add_argument(
        "--debug", action="store_true", help="show where an error came from"
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    _add_fit(commands)
    _add_sample(commands)
    _add_report(commands)
    _add_schema(commands)
    _add_forecast(commands)
    return parser


def _command(
    commands: Any, run: Any, output: str | None = None, needed: bool = True
) -> Parser:
    text = inspect.getdoc(run)
    command: Parser = commands.add_parser(run.__name__, help=text, description=text)
    command.set_defaults(run=run)
    if output is not None:
        add = command.add_argument
        add("-o", "--output", required=needed, help=output)
        add("--force", action="store_true", help="replace what is there")
    return command


def _add_model(command: Parser) -> None:
    command.add_argument("--model", choices=list(MODELS), default="flow")
    command.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="any other parameter of the synthesizer; may be repeated",
    )  # fmt: skip


def _add_fit(commands: Any) -> None:
    command = _command(commands, fit, "the model file to write")
    command.add_argument("data", help="private rows, .csv or .parquet")
    _add_csv(command)
    command.add_argument(
        "--epsilon", type=_epsilon, required=True, help="budget; none for no privacy"
    )
    command.add_argument("--delta", type=float, default=1e-5, help="default 1e-5")
    command.add_argument("--schema", help="JSON file of public facts; see schema")
    command.add_argument("--public", help="rows that nobody has to protect")
    _add_model(command)
    command.add_argument(
        "--checkpoint", metavar="FILE",
        help="go on from FILE after an interruption; as private as the rows",
    )  # fmt: skip
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_sample(commands: Any) -> None:
    command = _command(commands, sample, "the table to write, .csv or .parquet")
    command.add_argument("model", help="a model file")
    command.add_argument(
        "-n", "--n-samples", type=int, required=True, help="number of rows"
    )
    command.add_argument("--random-state", type=_seed, help="for the same rows again")
    command.add_argument(
        "--given", action="append", default=[], metavar="NAME=VALUE",
        help="only rows of this value, [values], (low, high) or None; repeatable",
    )  # fmt: skip


def _add_report(commands: Any) -> None:
    command = _command(commands, report, "the page to write, with --real", False)
    command.add_argument("model", help="a model file")
    command.add_argument("--real", help="the rows that were fitted")
    _add_csv(command)
    command.add_argument("--holdout", help="real rows that were not")
    command.add_argument("--target", help="column that models are to predict")
    command.add_argument("--random-state", type=_seed, default=0, help="default 0")
    command.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_schema(commands: Any) -> None:
    command = _command(commands, schema, "the JSON file to write")
    command.add_argument("data", help="rows, .csv or .parquet")
    _add_csv(command)


def _add_csv(command: Parser) -> None:
    """Add how CSV files that are read are written."""
    add = command.add_argument_group("CSV files, also .gz, .bz2 and .xz").add_argument
    add("--sep", type=_separator, default=",", help="default a comma; tab for tabs")
    add("--encoding", type=_encoding, default="utf-8-sig", help="default utf-8")
    add("--decimal", choices=[".", ","], default=".", help="default a point")
    add("--na", action="append", default=[], help="missing entry, beside empty ones")
    add("--date-format", help='such as "%%d.%%m.%%Y"; default ISO 8601')


def _add_forecast(commands: Any) -> None:
    command = _command(commands, forecast)
    command.add_argument("schema", help="JSON file of public facts; see schema")
    command.add_argument("--rows", type=int, required=True, help="about how many")
    command.add_argument("--epsilon", type=float, required=True, help="budget")
    command.add_argument("--delta", type=float, default=1e-5, help="default 1e-5")
    _add_model(command)


def _epsilon(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


def _separator(text: str) -> str:
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1:
        raise ValueError
    return found


def _encoding(text: str) -> str:
    try:
        return "utf-8-sig" if codecs.lookup(text).name == "utf-8" else text
    except LookupError:
        raise ValueError from None


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**32:
        raise ValueError
    return seed


# What errors call them.
_epsilon.__name__ = "number"
_seed.__name__ = "seed"
_separator.__name__ = "separator"
_encoding.__name__ = "encoding"
