"""Mix rows of several files in given proportions, shuffled, into one file."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from critic_prm.data.hashing import unit
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.rows import DatasetStats, spool
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its weight. Weights are relative; they need not sum to 1."""

    path: str
    weight: float


@dataclass(frozen=True, slots=True)
class MixOptions:
    """How many rows to draw."""

    total: Annotated[int | None, Option(("-n",), min=1)] = None
    """Write N rows; default: as many as the weights allow."""
    seed: Annotated[int, Option(envvar="CRITIC_PRM_SEED")] = 0
    """Random seed of drawing and shuffling."""
    repeat: bool = False
    """Repeat rows of a source that is too small."""

    def __post_init__(self) -> None:
        check_fields(self)


def parse_sources(words: Sequence[str]) -> list[Source]:
    """Parse "gsm8k.jsonl=0.7" and the like. A file without a weight has weight 1. Raises UsageError."""
    sources = []
    for word in words:
        path, mark, weight = word.rpartition("=")
        try:
            source = Source(path, float(weight)) if mark else Source(word, 1.0)
        except ValueError:
            raise UsageError(f"{word!r} is not FILE=WEIGHT; a weight is a number such as 0.7") from None
        if not 0 < source.weight < float("inf"):
            raise UsageError(f"the weight of {source.path} is {source.weight:g}; it must be above 0")
        sources.append(source)
    if len({source.path for source in sources}) < len(sources):
        raise UsageError("a file is named twice; give it one weight")
    return sources


def mix(sources: Sequence[Source], out: str | Path, options: MixOptions = MixOptions()) -> dict[str, Any]:
    """Write rows to `out`, drawn from the sources in proportion to their weights, and return the report.

    The default total is the largest for which every source has enough rows. Rows are drawn without replacement. If a source
    is too small, InputError is raised, or with `repeat` its rows are repeated with new ids. Each row gets its `source`, unless
    it has one. An id that occurs in two sources is prefixed with the source's name. The draw and its order depend only on seed,
    source and position. Rows are spooled to disk.
    """
    account = DatasetStats("mix")
    with spool(out) as rows:
        offsets: list[array[int]] = []
        for source in sources:
            own = array("Q")
            for row in account.read(source.path):
                own.append(rows.write([row.kind, row.id, row.data]))
            offsets.append(own)
        counts = _counts(sources, [len(own) for own in offsets], options)
        drawn: list[tuple[float, int, int, int]] = []
        for number, (source, own, count) in enumerate(zip(sources, offsets, counts, strict=True)):
            name = Path(source.path).name
            lots = sorted((unit("mix", options.seed, name, place), place) for place in range(len(own)))
            for turn in range(count):
                again, place = turn // len(own), lots[turn % len(own)][1]
                drawn.append((unit("order", options.seed, name, place, again), number, place, again))
        drawn.sort()
        used: set[str] = set()
        with RecordWriter(out) as writer:
            for _, number, place, again in drawn:
                kind, identity, data = rows.at(offsets[number][place])
                name = Path(sources[number].path).name.partition(".")[0]
                account.keep(kind)
                writer.write({**data, "id": _fresh(identity, name, again, used), "source": data.get("source") or name})
    shares = {
        source["name"]: {"rows": source["rows"], "drawn": count, "share": count / max(1, len(drawn))}
        for source, count in zip(account.files, counts, strict=True)
    }
    weights = {Path(source.path).name: source.weight for source in sources}
    return account.report(out, {"weights": weights, **asdict(options)}, {"sources": shares})


def _counts(sources: Sequence[Source], rows: Sequence[int], options: MixOptions) -> list[int]:
    """The number of rows drawn from each source, rounded by the largest-remainder method."""
    whole = sum(source.weight for source in sources)
    shares = [source.weight / whole for source in sources]
    for source, n in zip(sources, rows, strict=True):
        if not n:
            raise InputError(source.path, "the file contains no rows", "leave it out")
    total = options.total
    if total is None:
        total = int(min(n / share for n, share in zip(rows, shares, strict=True)) + 1e-9)
    counts = [int(total * share) for share in shares]
    left = sorted(range(len(shares)), key=lambda i: (counts[i] - total * shares[i], i))
    for i in left[: total - sum(counts)]:
        counts[i] += 1
    for source, n, count in zip(sources, rows, counts, strict=True):
        if count > n and not options.repeat:
            fix = "request fewer with -n, give it a smaller weight, or repeat rows with --repeat"
            raise InputError(source.path, f"it holds {n} rows, but {count} of {total} are its share", fix)
    return counts


def _fresh(identity: str, source: str, again: int, used: set[str]) -> str:
    """A unique id: the row's own, else prefixed with its source, else also numbered."""
    wanted = [identity, f"{source}:{identity}"] if not again else []
    turn = again + 1
    while True:
        for name in wanted:
            if name not in used:
                used.add(name)
                return name
        wanted = [f"{source}:{identity}#{turn}"]
        turn += 1


def mix_lines(report: Mapping[str, Any]) -> list[str]:
    """What was drawn from each source, as text."""
    shown = (f"{name} {one['drawn']:,} of {one['rows']:,} ({one['share']:.1%})" for name, one in report["sources"].items())
    return ["drawn: " + ", ".join(shown)]
