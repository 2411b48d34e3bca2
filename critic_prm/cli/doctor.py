"""critic-prm doctor: one request to a judge, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions


@with_judging
def doctor(
    judge: Annotated[
        str, typer.Argument(metavar="JUDGE", help="provider/MODEL, or a verifier that vLLM serves at --base-url.")
    ],
    golden: Annotated[
        Path | None, typer.Option(help="Scores of one fixed question: written the first time, compared with afterwards.")
    ] = None,
    *,
    judging: JudgeOptions,
) -> None:
    """Ask a judge one small question: what works, what a run with these options would send, and why anything is refused.

    Takes the options of `label`. Exit code 4 when a run would fail.
    """
    import os
    import tempfile
    from dataclasses import replace

    from critic_prm.cli.doctor_checks.run import Finding, examine
    from critic_prm.cli.doctor_checks.verifier import examine_verifier
    from critic_prm.critics.llm import connect
    from critic_prm.errors import UsageError

    served = judging.base_url if (Path(judge) / "verifier.json").is_file() else None
    if served is None and ("/" not in judge or Path(judge).is_dir()):
        raise UsageError(
            f"{judge!r} is no judge that is asked over a network; name one as provider/MODEL, such as openai/MODEL, or a"
            " verifier's folder with the --base-url of a vLLM that serves it"
        )

    async def run(folder: str) -> list[Finding]:
        if served is not None:
            return await examine_verifier(Path(judge), served, os.environ.get("VLLM_API_KEY") or "none")
        critic = connect(judge, replace(judging, db=Path(folder) / "doctor.db"))
        # A model in this process is loaded first, which takes as long as it takes.
        near = "near" in getattr(critic.client.provider, "gives", ())
        patience = judging.timeout if near else min(judging.timeout, 120.0)
        try:
            return await examine(critic, patience, golden)
        finally:
            await critic.close()

    with tempfile.TemporaryDirectory() as folder:
        findings = signals.run(run(folder))
    marks = {"ok": "ok  ", "note": "note", "bad": "BAD "}
    for finding in findings:
        typer.echo(f"{marks[finding.state]}  {finding.what:<11} {finding.said}")
    raise typer.Exit(4 if any(finding.state == "bad" for finding in findings) else 0)
