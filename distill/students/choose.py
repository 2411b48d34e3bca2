"""Open a student by the name that the command line gives it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, cast

from critic_prm import registry
from critic_prm.errors import UsageError
from distill.types import Student, StudentModule

if TYPE_CHECKING:
    from distill.training.settings import TrainingSettings


def student_names() -> list[str]:
    """The students there are: the modules of `distill/students`."""
    return registry.names("student")


def open_student(name: str) -> StudentModule:
    """Import the student called `name`. Raises UsageError that lists what there is instead."""
    return cast(StudentModule, registry.load("student", name))


def choose_student(name: str, settings: TrainingSettings, sources: tuple[str, ...] = ()) -> Student:
    """The student that a command names: "linear", any base (a hub name or a local folder) for a transformer, or
    "implicit:BASE" for one that learns from outcomes alone, "hybrid:BASE" for the linear one that also reads with a base
    (of the sources that match `sources`, if there are any).

    Raises UsageError when settings are given that the student does not have.
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
    """The options that differ from their defaults, as the command line writes them."""
    return [f"--{f.name.replace('_', '-')}" for f in fields(settings) if getattr(settings, f.name) != f.default]
