"""Read data sets of the Hugging Face Hub, named `hf:owner/name[:config][@split]`, through the cache of `datasets`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from typing import Any

from critic_prm.data.records.containers import is_binary
from critic_prm.errors import InputError
from critic_prm.registry import extra

_NAME = re.compile(r"hf:(?P<repo>\w[\w.-]*(?:/\w[\w.-]*)?)(?::(?P<config>[^:@/\\\s]+))?(?:@(?P<split>[^@\s]+))?")
_LISTED = re.compile(r"(?:configs|Available|in the cache): \[?([^\]\n]+)")
_BATCH = 1024


def read_hub(name: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the columns of a split and each row as an object, without null values and columns of bytes, such as images.

    The first use downloads all splits of the configuration to the cache of `datasets`; later ones, and those offline
    (HF_HUB_OFFLINE=1), read the cache. Code in a data set is never run. Raises ConfigError without the extra, and InputError
    for anything that cannot be read, with the names of the configurations or splits if one must be chosen.
    """
    repo, config, split = _parsed(name)
    builder, names = _open(name, repo, config)
    chosen = split or (names[0] if len(names) == 1 else "")
    if not chosen or not set(re.findall(r"(?:^|\+)([\w.-]+)", chosen)) <= set(names):
        what = f"there is no split {split!r}; " if split else ""
        address = f"hf:{repo}:{config}" if config else f"hf:{repo}"
        raise InputError(name, f"{what}it has the splits {', '.join(names)}", f"choose one, such as {address}@{names[-1]}")
    with _explained(name, repo):
        builder.download_and_prepare()
        rows = builder.as_dataset(split=chosen).with_format("arrow")
    for table in rows.iter(batch_size=_BATCH):
        columns = tuple(table.schema.names)
        texts = [field.name for field in table.schema if not is_binary(field.type)]
        for row in table.select(texts).to_pylist():
            yield columns, {key: value for key, value in row.items() if value is not None}


def splits_of(name: str) -> list[str]:
    """The names of the splits of a data set, each as `hf:owner/name[:config]@split`; the name itself if it has a split."""
    repo, config, split = _parsed(name)
    if split:
        return [name]
    return [f"{name}@{one}" for one in _open(name, repo, config)[1]]


def _parsed(name: str) -> tuple[str, str | None, str | None]:
    if match := _NAME.fullmatch(name):
        return match["repo"], match["config"], match["split"]
    raise InputError(
        name, "this is not the name of a data set", "write hf:owner/name, hf:owner/name:config or hf:owner/name@split"
    )


def _open(name: str, repo: str, config: str | None) -> tuple[Any, list[str]]:
    """The builder of a data set, and the names of its splits."""
    datasets = extra("datasets", "hf", f"reading {name}")
    from huggingface_hub.utils import logging as hub_logging

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    datasets.logging.set_verbosity(CRITICAL)  # errors are raised, too
    hub_logging.set_verbosity(CRITICAL)  # offline, it prints two lines for each of six attempts
    with _explained(name, repo, config):
        # with this prefix, a folder that happens to have the same name is not read
        builder = datasets.load_dataset_builder(f"hf://datasets/{repo}", config)
        names = [str(split) for split in builder.info.splits or builder.config.data_files or ()]
    if not names:
        raise InputError(name, "the data set has no splits", "download its files and give them one by one")
    return builder, names


@contextmanager
def _explained(name: str, repo: str, config: str | None = None) -> Iterator[None]:
    """Turn the errors of `datasets` into an InputError of one line."""
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.constants import HF_HUB_OFFLINE

    try:
        yield
    except DatasetNotFoundError:
        fix = "check the name; for a private or gated data set, log in with: hf auth login"
        raise InputError(name, "there is no such data set on the Hub, or you have no access to it", fix) from None
    except ConnectionError:
        state = "HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else "the Hub cannot be reached"
        fix = "run once with a connection, or give the data as a file"
        raise InputError(name, f"{state}, and the data set is not in the local cache", fix) from None
    except ValueError as error:
        text = str(error)
        listed = [part.strip(" '\"") for part in (_LISTED.search(text) or ["", ""])[1].split(",") if part.strip()]
        if not listed:
            raise InputError(name, _first_line(error)) from None
        what = f"there is no configuration {config!r}; " if config else ""
        what += "the local cache has" if "cache" in text else "it has"
        fix = f"choose one, such as hf:{repo}:{listed[0]}"
        raise InputError(name, f"{what} the configurations {', '.join(listed)}", fix) from None
    except RuntimeError as error:
        if "scripts" not in str(error):
            raise InputError(name, _first_line(error)) from None
        fix = "give a file of its branch refs/convert/parquet"
        raise InputError(name, "this data set needs its own code to be read, which is never run", fix) from None
    except Exception as error:  # whatever the client, the file system and the parsers raise
        cause = error.__cause__ or error
        raise InputError(name, f"the data set cannot be read: {type(cause).__name__}: {_first_line(cause)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
