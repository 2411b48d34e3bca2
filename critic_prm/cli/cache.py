"""critic-prm cache: inspect, export and import cached replies."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import CacheOptions
from critic_prm.terminal import safe_console

app = typer.Typer()

Key = Annotated[str, typer.Argument(help="A key from a label file, or a prefix of it.")]


@app.command()
def stats(options: CacheOptions) -> None:
    """Count replies, attempts and tokens by provider and model.

    Reads the cache (--db). Prints a table.

    Example: critic-prm cache stats
    """
    from rich import box
    from rich.table import Table

    from critic_prm.engine.cache import Cache
    from critic_prm.engine.place import shown

    cache = Cache(options.cache, readonly=True)
    found = cache.count()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold")
    for heading in ("replies", "tokens in", "cached", "tokens out", "last"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found["models"]:
        tokens = (f"{row[name] or 0:,}" for name in ("input_tokens", "cached_tokens", "output_tokens"))
        table.add_row(
            f"{row['provider']}/{row['model']}", f"{row['replies']:,}", *tokens, (row["last"] or "")[:16].replace("T", " ")
        )
    console = safe_console()
    console.print(f"{shown(cache.path)}: {found['bytes'] / 1e6:.1f} MB", highlight=False, markup=False)
    console.print(table)
    for row in found["attempts"]:
        console.print(f"attempts that brought no complete reply: {row['failure']} {row['attempts']:,}", highlight=False)


@app.command()
def show(key: Key, options: CacheOptions) -> None:
    """Show one reply with its request, usage and attempts.

    Reads the cache (--db). Prints JSON. Label files name the keys of their replies.

    Example: critic-prm cache show 3f2a9c
    """
    import orjson

    from critic_prm.engine.cache import Cache

    typer.echo(orjson.dumps(Cache(options.cache, readonly=True).find(key), option=orjson.OPT_INDENT_2))


@app.command()
def explain(first: Key, second: Key, options: CacheOptions) -> None:
    """Explain why two keys differ: list every difference between their requests.

    Reads the cache (--db). Prints one path per difference, with both values.

    Example: critic-prm cache explain 3f2a9c 81d0be
    """
    from critic_prm.engine.cache import Cache

    differences = Cache(options.cache, readonly=True).explain(first, second)
    for place, left, right in differences:
        typer.echo(f"{place}\n  - {left!r}\n  + {right!r}")
    if not differences:
        typer.echo("the two are one request")


@app.command()
def export(
    options: CacheOptions,
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="JSONL file to write; - is stdout.")] = "-",
) -> None:
    """Export all replies as JSONL, for `cache import` on another machine.

    Reads the cache (--db). Writes JSONL (-o).

    Example: critic-prm cache export -o replies.jsonl
    """
    from critic_prm.data.records.reading import write_records
    from critic_prm.engine.cache import Cache

    rows = write_records(out, Cache(options.cache, readonly=True).export())
    typer.echo(f"{rows:,} replies", err=True)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="FILE", help="File written by `cache export`; - is stdin.")],
    options: CacheOptions,
    without_digest: Annotated[
        bool, typer.Option("--without-digest", help="Accept rows from older exports, which have no digest.")
    ] = False,
) -> None:
    """Import replies that were exported from another cache.

    Reads JSONL (FILE). Writes to the cache (--db). Replies that are already in the cache are left unchanged.

    Example: critic-prm cache import replies.jsonl
    """
    from critic_prm.data.records.reading import read_records
    from critic_prm.engine.cache import import_rows
    from critic_prm.label.reread import stored_text

    added, known = import_rows(options.cache, read_records(source), read=stored_text, undigested=without_digest)
    typer.echo(f"{added:,} replies added, {known:,} were there already", err=True)
