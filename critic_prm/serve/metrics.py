"""Count requests, solutions and times, and write them in the Prometheus text format (exposition format 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

Sample = tuple[str, object]
"""The suffix and labels of a metric, and its value."""


class Histogram:
    """Counts of values per bucket (inclusive upper bounds; the last one is +Inf), and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self, **labels: str) -> Iterator[Sample]:
        cumulative = list(accumulate(self.counts))
        for bound, count in zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], cumulative, strict=True):
            yield f"_bucket{_labels(**labels, le=bound)}", count
        yield f"_sum{_labels(**labels)}", self.total
        yield f"_count{_labels(**labels)}", cumulative[-1]


@dataclass(slots=True)
class Metrics:
    """All metrics of the server. Labels are endpoint names, HTTP codes and statuses: a few dozen at most, none from
    requests."""

    build: dict[str, str]
    """Labels of the metric `build_info`."""
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of requests by endpoint and HTTP status."""
    seconds: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(lambda: Histogram(SECONDS)))
    """Time per request, by endpoint."""
    batches: Histogram = field(default_factory=lambda: Histogram(SIZES))
    """Solutions per batch."""
    solutions: Counter[str] = field(default_factory=Counter)
    """Number of scored solutions by status."""
    steps: int = 0
    """Number of steps that got a P(correct)."""
    gauges: dict[str, tuple[str, Callable[[], float | None]]] = field(default_factory=dict)
    """Help text and current value of further metrics, by name; None: unknown."""

    def text(self) -> str:
        requests = ((_labels(endpoint=name, code=str(code)), n) for (name, code), n in sorted(self.requests.items()))
        seconds = (sample for name, times in sorted(self.seconds.items()) for sample in times.samples(endpoint=name))
        solutions = ((_labels(status=status), n) for status, n in sorted(self.solutions.items()))
        families: list[tuple[str, str, str, Iterable[Sample]]] = [
            ("requests_total", "counter", "Requests answered, by endpoint and HTTP code.", requests),
            ("request_duration_seconds", "histogram", "Time from the head of a request to the end of its reply.", seconds),
            ("batch_size", "histogram", "Solutions passed to the critic at once.", self.batches.samples()),
            ("solutions_scored_total", "counter", "Solutions scored, by status.", solutions),
            ("steps_scored_total", "counter", "Steps that got a P(correct).", [("", self.steps)]),
            *((name, "gauge", about, _known(read())) for name, (about, read) in self.gauges.items()),
            ("build_info", "gauge", "Version of critic-prm and name of the model.", [(_labels(**self.build), 1)]),
        ]
        lines = []
        for name, kind, about, samples in families:
            lines += [f"# HELP critic_prm_{name} {about}", f"# TYPE critic_prm_{name} {kind}"]
            lines += [f"critic_prm_{name}{labels} {value}" for labels, value in samples]
        return "\n".join(lines) + "\n"


def _known(value: float | None) -> list[Sample]:
    return [] if value is None else [("", f"{value:g}")]


def _labels(**labels: str) -> str:
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in labels.values())
    pairs = ",".join(f'{name}="{value}"' for name, value in zip(labels, escaped, strict=True))
    return f"{{{pairs}}}" if pairs else ""
