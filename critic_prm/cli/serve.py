"""critic-prm serve: serve a critic over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.engine.options import JudgeOptions

LIMITS = "Limits"


def serve(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")],
    host: Annotated[str, typer.Option(help="Address to listen on; any but a loopback address requires a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the bearer token, if CRITIC_PRM_TOKEN is not set.")
    ] = None,
    aggregation: Annotated[str, typer.Option(help="Aggregation of step scores, unless a request names another.")] = "min",
    step_tag: Annotated[
        str, typer.Option(help="Tag that ends a step in texts sent to /pooling and /get_reward.")
    ] = "<extra_0>",
    samples: Annotated[int, typer.Option(min=1, help="Judgements per solution, if CRITIC is a judge.")] = 1,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Pass at most N solutions to the critic at once.", rich_help_panel=LIMITS)
    ] = None,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Queue at most N solutions; then reply with 429.", rich_help_panel=LIMITS)
    ] = 1024,
    max_body: Annotated[
        int, typer.Option(min=1024, help="Maximum size of a request body in bytes.", rich_help_panel=LIMITS)
    ] = 4 << 20,
    max_clients: Annotated[int, typer.Option(min=1, help="Maximum number of open connections.", rich_help_panel=LIMITS)] = 512,
    read_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds within which a request must arrive.", rich_help_panel=LIMITS)
    ] = 10.0,
    answer_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds within which a request is answered.", rich_help_panel=LIMITS)
    ] = 120.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log one line per request, without its text.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Serve a critic over HTTP until it is stopped.

    Reads a critic (CRITIC). Writes a log to stderr. Endpoints: /v1/score, /v1/rank, vLLM's /pooling, OpenRLHF's /get_reward,
    /health, /metrics and /openapi.json. The bearer token comes from the environment variable CRITIC_PRM_TOKEN or a file, never
    from the command line. On Ctrl-C, SIGTERM or SIGHUP the server finishes open requests and exits.

    Example: critic-prm serve verifier --port 8000
    """
    import logging

    from critic_prm.critics.open import open_critic
    from critic_prm.serve.app import serve as run
    from critic_prm.serve.server import loop_factory, require_extra
    from critic_prm.serve.settings import ServeSettings, check, find_token

    settings = ServeSettings(
        host=host,
        port=port,
        token=find_token(token_file),
        max_batch=max_batch,
        max_queue=max_queue,
        max_body=max_body,
        max_clients=max_clients,
        read_timeout=read_timeout,
        answer_timeout=answer_timeout,
        grace=judging.grace,
        samples=samples,
        workers=judging.max_connections,
        aggregation=aggregation,
        step_tag=step_tag,
    )
    check(settings)
    require_extra()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("critic_prm.serve").setLevel(logging.DEBUG if verbose else logging.INFO)
    safety = "with a token" if settings.token else "without a token, for this machine only"

    async def main() -> None:
        await run(open_critic(critic, judging), settings, lambda url: typer.echo(f"{critic} at {url}, {safety}", err=True))

    signals.run(main(), loop_factory=loop_factory())
    typer.echo("stopped", err=True)
