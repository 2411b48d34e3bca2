"""critic-prm serve: a critic behind HTTP until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

LIMITS = "What is too much"


@with_judging
def serve(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier's folder, `rules`, or provider/MODEL.")],
    host: Annotated[str, typer.Option(help="Where to listen; another than this machine's own needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the bearer token, if CRITIC_PRM_TOKEN does not.")
    ] = None,
    aggregation: Annotated[str, typer.Option(help="How step scores become a solution's, unless a request says.")] = "min",
    step_tag: Annotated[str, typer.Option(help="What ends a step in texts of /pooling and /get_reward.")] = "<extra_0>",
    samples: Annotated[int, typer.Option(min=1, help="Judgements a solution, of a judge.")] = 1,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Most solutions the critic gets at once.", rich_help_panel=LIMITS)
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Most solutions that wait; then 429.", rich_help_panel=LIMITS)] = 1024,
    max_body: Annotated[int, typer.Option(min=1024, help="Most bytes of a request.", rich_help_panel=LIMITS)] = 4 << 20,
    max_clients: Annotated[int, typer.Option(min=1, help="Most connections at once.", rich_help_panel=LIMITS)] = 512,
    read_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which a request must arrive.", rich_help_panel=LIMITS)
    ] = 10.0,
    answer_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which it is answered.", rich_help_panel=LIMITS)
    ] = 120.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line a request, without its text.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Serve a critic over HTTP: /v1/score, /v1/rank, vLLM's /pooling, OpenRLHF's /get_reward, /health, /metrics, /openapi.json.

    The bearer token comes from the environment variable CRITIC_PRM_TOKEN or a file, never from the command line. Ctrl-C,
    SIGTERM or SIGHUP finishes what is being answered.
    """
    import logging

    from critic_prm.critics.open import open_critic
    from critic_prm.serve.run import loop_factory, require_extra
    from critic_prm.serve.run import serve as run
    from critic_prm.serve.settings import ServeSettings, check, find_token

    settings = ServeSettings(
        host=host,
        port=port,
        token=find_token(token_file),
        batch=batch,
        queue=queue,
        body=max_body,
        connections=max_clients,
        reading=read_timeout,
        timeout=answer_timeout,
        grace=judging.grace,
        samples=samples,
        workers=judging.connections,
        aggregation=aggregation,
        tag=step_tag,
    )
    check(settings)
    require_extra()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("critic_prm.serve").setLevel(logging.DEBUG if verbose else logging.INFO)
    safety = "with a token" if settings.token else "without a token, for this machine alone"

    async def main() -> None:
        await run(open_critic(critic, judging), settings, lambda url: typer.echo(f"{critic} at {url}, {safety}", err=True))

    signals.run(main(), loop_factory=loop_factory())
    typer.echo("stopped", err=True)
