"""critic-prm serve: serve a critic over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.engine.options import JudgeOptions
from critic_prm.serve.settings import ServeSettings, check, find_token
from critic_prm.terminal import note, verbosity


def serve(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")],
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the bearer token, if CRITIC_PRM_TOKEN is not set.")
    ] = None,
    *,
    settings: ServeSettings,
    judging: JudgeOptions,
) -> None:
    """Serve a critic over HTTP until it is stopped.

    Reads a critic (CRITIC). Writes a log to stderr, with --verbose one line per request, without its text. Endpoints:
    /v1/score, /v1/rank, vLLM's /pooling, OpenRLHF's /get_reward, /health, /metrics and /openapi.json. The bearer token comes
    from the environment variable CRITIC_PRM_TOKEN or a file, never from the command line. On Ctrl-C, SIGTERM or SIGHUP the
    server finishes open requests and exits.

    Example: critic-prm serve verifier --port 8000
    """
    import logging
    from dataclasses import replace

    from critic_prm.critics.open import open_critic
    from critic_prm.serve.app import serve as run
    from critic_prm.serve.server import loop_factory, require_extra

    settings = replace(settings, token=find_token(token_file))
    check(settings)
    require_extra()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    levels = {"quiet": logging.WARNING, "normal": logging.INFO, "verbose": logging.DEBUG}
    logging.getLogger("critic_prm.serve").setLevel(levels[verbosity()])
    safety = "with a token" if settings.token else "without a token, for this machine only"

    async def main() -> None:
        await run(open_critic(critic, judging), settings, lambda url: note(f"{critic} at {url}, {safety}"))

    signals.run(main(), loop_factory=loop_factory())
    note("stopped")
