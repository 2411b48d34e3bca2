"""Server metrics in the Prometheus text format (exposition format 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(slots=True)
class Histogram:
    """Counts of values per bucket (inclusive upper bounds; the last one is +Inf), and their sum."""

    ends: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, value: float) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.ends) + 1)
        self.counts[bisect_left(self.ends, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        seen, comma = 0, "," if labels else ""
        ends = [*map(_number, self.ends), "+Inf"]
        for end, count in zip(ends, self.counts or [0] * len(ends), strict=True):
            seen += count
            yield f'{name}_bucket{{{labels}{comma}le="{end}"}} {seen}'
        outer = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{outer} {self.total!r}"
        yield f"{name}_count{outer} {seen}"


@dataclass(slots=True)
class Meters:
    """All metrics of the server. Labels are endpoint names, HTTP codes and statuses: a few dozen at most, none from
    requests."""

    build: dict[str, str]
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(lambda: Histogram(SECONDS)))
    batches: Histogram = field(default_factory=lambda: Histogram(SIZES))
    solutions: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    gauges: dict[str, tuple[str, Callable[[], float]]] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests answered, by endpoint and HTTP code.")
        for (endpoint, code), count in sorted(self.requests.items()):
            yield f'critic_prm_requests_total{{endpoint="{endpoint}",code="{code}"}} {count}'
        yield from _head("request_duration_seconds", "histogram", "From the head of a request to the end of its answer.")
        for endpoint, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("critic_prm_request_duration_seconds", f'endpoint="{endpoint}"')
        yield from _head("batch_size", "histogram", "Solutions that the critic was given at once.")
        yield from self.batches.lines("critic_prm_batch_size")
        yield from _head("solutions_scored_total", "counter", "Solutions scored, by status.")
        for status, count in sorted(self.solutions.items()):
            yield f'critic_prm_solutions_scored_total{{status="{status}"}} {count}'
        yield from _head("steps_scored_total", "counter", "Steps that got a P(correct).")
        yield f"critic_prm_steps_scored_total {self.steps}"
        for name, (help_, read) in self.gauges.items():
            yield from _head(name, "gauge", help_)
            yield f"critic_prm_{name} {_number(read())}"
        yield from _head("build_info", "gauge", "What runs here.")
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.build.items())
        yield f"critic_prm_build_info{{{labels}}} 1"


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP critic_prm_{name} {help_}"
    yield f"# TYPE critic_prm_{name} {kind}"


def _number(value: float) -> str:
    return f"{value:g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
