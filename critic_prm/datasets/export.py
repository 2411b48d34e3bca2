"""Export a training set, label file or trajectories in a trainer's format, as a file or a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from critic_prm.data.formats import convert as formats
from critic_prm.data.formats.convert import Dropped, Options, Report
from critic_prm.data.label_rows import labelled_from_json, without_labels
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.records.writing import new_folder
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.build import Targets, from_gold, from_label
from critic_prm.datasets.describe import FEATURES, SPLITS, About, card, statistics
from critic_prm.datasets.rows import DatasetStats, Row
from critic_prm.errors import InputError, UsageError

Samples = Literal["first", "all"]
FOLDER, TABLE = "datasets", "parquet"
"""The two targets that are not row formats: a folder for `load_dataset`, and training rows as Parquet."""
CHAINS = "thinkprm"
MARK = "export.json"
"""The report file within a folder. A folder that contains it is an earlier export and may be replaced."""
READING = ("map", "segment")
"""Options that concern the reading of files in other formats; rows are exported as they are."""
DEFAULT = Options()
_SPLITS = ("train", "dev", "test")


def targets() -> list[str]:
    """The available export targets."""
    return [FOLDER, TABLE, *formats.writable()]


def export(
    source: str | Path,
    to: str,
    out: str | Path,
    options: Options = DEFAULT,
    *,
    samples: Samples = "first",
    about: About | None = None,
) -> dict[str, Any]:
    """Write `source` to `out` in the format `to` (one of `targets()`) and return the report.

    A training-set folder becomes a folder with one file per nonempty split; any other input becomes one file. "datasets" always
    gives a folder that `load_dataset` reads offline, with a card. Rows of a label file are exported with the critic's labels,
    except to "thinkprm", which uses the gold labels if there are any; there `samples="all"` writes one chain per judgement.
    Raises InputError and UsageError.
    """
    if to not in targets():
        raise UsageError(f"--to is {to!r}; it is one of {', '.join(targets())}")
    if samples not in get_args(Samples):
        raise UsageError(f"--samples is {samples!r}; it is first or all")
    folder = Path(source)
    whole = folder.is_dir()
    if whole and not (folder / "dataset.json").is_file():
        raise UsageError(f"{folder} is a folder without dataset.json; name a training set of `dataset build`, or a file")
    job = _Job(to, options, samples)
    if not whole and to != FOLDER:
        job.part(folder, Path(out))
        return job.account.report(out, *job.outcome())
    if str(out) == "-":
        raise UsageError("a folder cannot go to stdout; name it with -o")
    with new_folder(out, MARK, "export") as work:
        parts = {name: folder / f"{name}.jsonl" for name in _SPLITS} if whole else {"train": folder}
        files = {}
        for name, path in parts.items():
            if whole and not path.stat().st_size:
                continue  # a split without rows is an empty file
            file = _file(name, to)
            (work / file).parent.mkdir(exist_ok=True)
            if job.part(path, work / file):
                files[SPLITS[name]] = file
            else:
                (work / file).unlink(missing_ok=True)
        report = job.account.summary(*job.outcome())
        if to == FOLDER:
            made = orjson.loads((folder / "dataset.json").read_bytes()) if whole else None
            counted = {split: statistics([work / file]) for split, file in files.items()}
            (work / "README.md").write_text(card(about or About(), files, counted, made), encoding="utf-8")
        (work / MARK).write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    return report


def _file(split: str, to: str) -> str:
    if to == FOLDER:
        return f"data/{SPLITS[split]}-00000-of-00001.jsonl"
    return f"{split}.parquet" if to == TABLE else f"{split}.jsonl"


@dataclass(slots=True)
class _Job:
    """One export: its target and its counts."""

    to: str
    options: Options
    samples: Samples
    account: DatasetStats = field(default_factory=lambda: DatasetStats("export"))
    conversion: Report = field(default_factory=Report)

    def part(self, path: Path, target: Path) -> int:
        """Export one file of rows to one file. Returns the number of rows written."""
        file = path.name.partition(".")[0]
        with RecordWriter(target) as writer:
            for row in self.account.read(path):
                try:
                    for made in self._training(row, file) if self.to in (FOLDER, TABLE) else self._converted(row):
                        writer.write(made)
                        self.account.keep(row.kind)
                except Dropped as reason:
                    self.account.drop(str(reason), row.kind)
        return writer.rows

    def outcome(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options and the lost content, for the report. Raises InputError if no row could be exported."""
        if not self.account.rows_out:
            left = ", ".join(f"{sum(kinds.values())} {reason}" for reason, kinds in self.account.dropped.items())
            name = self.account.files[0]["name"]
            raise InputError(name, f"no row of it can be exported to {self.to}", f"left out: {left}" if left else "it is empty")
        more = {"to": self.to, "cannot_say": dict(self.conversion.unsaid), "hidden": dict(self.conversion.hidden)}
        options = {name: value for name, value in asdict(self.options).items() if name not in READING}
        return {**options, "samples": self.samples}, more

    def _training(self, row: Row, file: str) -> Iterator[dict[str, Any]]:
        from critic_prm.datasets.build import training_row

        if row.shape == "training row":
            yield {name: row.data[name] for name, _, _ in FEATURES if name in row.data}
        else:
            yield training_row(row.trajectory, self._targets(row), file)

    def _converted(self, row: Row) -> Iterator[dict[str, Any]]:
        for trajectory in self._trajectories(row):
            yield formats.row_of(trajectory, self.to, self.options, self.conversion)

    def _trajectories(self, row: Row) -> Iterator[Trajectory]:
        trajectory = row.trajectory
        if row.shape == "label file":
            extra = dict(trajectory.extra) if self.to == CHAINS else without_labels(trajectory).extra
            trajectory = replace(trajectory, extra=extra)
            if self.to != CHAINS or row.gold is None:
                taught = self._targets(row)
                trajectory = replace(trajectory, step_labels=taught.labels, label=taught.first_error)
        judgements = trajectory.extra.get("judgements")
        if self.to != CHAINS or self.samples == "first" or not isinstance(judgements, list):
            yield trajectory
            return
        ok = [judgement for judgement in judgements if judgement.get("status") == "ok"]
        for number, judgement in enumerate(ok or judgements[:1]):
            own = {**trajectory.extra, "judgements": [judgement]}
            yield replace(trajectory, id=trajectory.id if len(ok) < 2 else f"{trajectory.id}#{number}", extra=own)

    def _targets(self, row: Row) -> Targets:
        """The training targets of a row. Raises Dropped if it has none."""
        corrected = self.options.corrected or "drop"
        if row.shape == "label file":
            taught = from_label(labelled_from_json(row.data, row.where).label, corrected=corrected, where=row.where)
        else:
            taught = from_gold(row.trajectory, corrected=corrected)
        if isinstance(taught, str):
            raise Dropped(taught)
        return taught


def export_lines(report: Mapping[str, Any]) -> list[str]:
    """What the target could not represent, as text."""
    parts = ((f"{report['to']} cannot represent", report["cannot_say"]), ("hidden by the options", report["hidden"]))
    ranked = ((what, sorted(some.items(), key=lambda item: -item[1])) for what, some in parts if some)
    return [f"{what}: {', '.join(f'{n:,} {name}' for name, n in some)}" for what, some in ranked]
