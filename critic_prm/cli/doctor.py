"""critic-prm doctor: check a judge or a served verifier with small requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.engine.options import JudgeOptions


def doctor(
    judge: Annotated[
        str, typer.Argument(metavar="JUDGE", help="provider/MODEL, or a verifier folder that vLLM serves at --base-url.")
    ],
    golden: Annotated[
        Path | None, typer.Option(help="Golden file: scores of a fixed question, written once and compared on later runs.")
    ] = None,
    *,
    options: JudgeOptions,
) -> None:
    """Check a judge with small requests: what works, what a run would send, and why a request is refused.

    Reads the judge (JUDGE) with the options of `label`. Prints one line per check and writes a golden file on request
    (--golden). The cache is not used. Exits with code 4 if a run would fail.

    Example: critic-prm doctor openai/gpt-5.4-mini
    """
    import os
    import tempfile
    from dataclasses import replace

    from critic_prm.cli.doctor_judge import Finding, examine, own_options
    from critic_prm.cli.doctor_vllm import examine_verifier
    from critic_prm.critics.llm import connect
    from critic_prm.engine.place import announce, shown
    from critic_prm.errors import UsageError

    served = options.base_url if (Path(judge) / "verifier.json").is_file() else None
    if served is None and ("/" not in judge or Path(judge).is_dir()):
        raise UsageError(
            f"{judge!r} is not a judge with a network API; name one as provider/MODEL, such as openai/MODEL, or a"
            " verifier's folder with the --base-url of a vLLM that serves it"
        )

    async def run(folder: str) -> list[Finding]:
        if served is not None:
            return await examine_verifier(Path(judge), served, os.environ.get("VLLM_API_KEY") or "none")
        critic = connect(judge, replace(options, db=Path(folder) / "doctor.db"))
        # A model in this process must be loaded first, which may take longer than two minutes.
        near = "in-process" in critic.client.provider.capabilities
        patience = options.timeout if near else min(options.timeout, 120.0)
        try:
            place = shown(options.cache) + ("" if options.cache.exists() else ", a new file")
            used = Finding("cache", "ok", f"a run uses {place}")
            return [*await examine(critic, patience, golden), used, *own_options(judge)]
        finally:
            await critic.close()

    announce.set(None)  # the temporary cache is of no interest
    with tempfile.TemporaryDirectory() as folder:
        findings = signals.run(run(folder))
    marks = {"ok": "ok  ", "note": "note", "bad": "BAD "}
    for finding in findings:
        typer.echo(f"{marks[finding.state]}  {finding.what:<11} {finding.said}")
    raise typer.Exit(4 if any(finding.state == "bad" for finding in findings) else 0)
