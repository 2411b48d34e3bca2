"""Open a student by its command-line name."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

from critic_prm import registry
from critic_prm.errors import UsageError
from distill.types import Student, StudentModule

if TYPE_CHECKING:
    from distill.training.settings import TrainingSettings


def student_names() -> list[str]:
    """List the available students: the modules of `distill/students`."""
    return registry.names("student")


def open_student(name: str) -> StudentModule:
    """Import the student called `name`. Raises UsageError with the available names."""
    return cast(StudentModule, registry.load("student", name))


def choose_student(name: str, settings: TrainingSettings, sources: tuple[str, ...] = ()) -> Student:
    """Create the student that a command names.

    "linear" is the linear student; a base (a hub name or a local folder) is a transformer. "implicit:BASE" learns from outcomes
    only; "hybrid:BASE" is the linear student with features of a frozen base, which reads the sources that match `sources`, or
    all if there are none.

    Raises UsageError for settings that the student does not support.
    """
    if sources and not name.startswith("hybrid:"):
        raise UsageError("--sources says what a hybrid student reads; other students learn from all sources")
    if name in student_names() and hasattr(open_student(name), "train"):
        changed = changed_settings(settings)
        if changed:
            raise UsageError(
                f"the {name} student has no {', '.join(changed)}; name a base, such as --student FOLDER, to use them"
            )
        return cast(Student, open_student(name))
    if name.startswith("implicit:"):
        from distill.students.implicit import Implicit

        return Implicit(name.removeprefix("implicit:"), settings)
    if name.startswith("hybrid:"):
        from distill.students.hybrid import APPLY, Hybrid

        changed = [option for option in changed_settings(settings) if option not in APPLY]
        if changed:
            raise UsageError(f"the hybrid student has no {', '.join(changed)}: its base is read, not trained")
        return Hybrid(name.removeprefix("hybrid:"), settings, sources or ("*",))
    from distill.students.transformer import Transformer

    return Transformer(name, settings)


def changed_settings(settings: TrainingSettings) -> list[str]:
    """List the options that differ from their defaults, as written on the command line."""
    return [f"--{f.name.replace('_', '-')}" for f in fields(settings) if getattr(settings, f.name) != f.default]
