"""Turn the verdicts found in a reply into a Reading: report missing and superfluous ones, impute none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from critic_prm.data.judgement import Verdict
from critic_prm.styles.reader import Expect, Reading


def settle(found: Mapping[int, Verdict], expect: Expect, notes: Sequence[str] = ()) -> Reading:
    """The reading for `found`, a mapping from 0-based step to verdict.

    The status is `ok` if every step that was to be judged has a verdict: all steps, the one asked about, or those up to the
    first error if the style stops there. Verdicts for nonexistent steps are dropped with a note.
    """
    notes = list(notes)
    wanted = range(expect.steps) if expect.step is None else range(expect.step, expect.step + 1)
    verdicts = [found[step] for step in sorted(found) if step in wanted]
    strange = [step for step in sorted(found) if step not in wanted]
    if strange:
        notes.append(f"dropped verdicts for steps that were not asked about: {_numbers(strange, expect)}")
    if not verdicts:
        return Reading("unparseable", (), (*notes, "no verdict was found"))
    if expect.stops:
        first = next((v.step for v in verdicts if v.value == "incorrect"), None)
        if first is not None:
            if verdicts[-1].step > first:
                notes.append("verdicts after the first incorrect step are left out")
            verdicts = [v for v in verdicts if v.step <= first]
            wanted = range(wanted.start, first + 1)
    missing = sorted(set(wanted) - {v.step for v in verdicts})
    if missing:
        notes.append(f"no verdict for {len(missing)} of {len(wanted)} steps: {_numbers(missing, expect)}")
        return Reading("count_mismatch", tuple(verdicts), tuple(notes))
    if not any(v.critique for v in verdicts):
        notes.append("verdicts without a critique")
    return Reading("ok", tuple(verdicts), tuple(notes))


def _numbers(steps: Sequence[int], expect: Expect) -> str:
    """Steps by their numbers in the prompt."""
    shown = ", ".join(str(step + expect.base) for step in steps[:10])
    return shown + (", ..." if len(steps) > 10 else "")
