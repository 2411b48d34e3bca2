"""Render the model cards of verifiers and of generative students in Markdown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def model_card(name: str, info: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the README.md of a verifier folder."""
    decision, training = info["decision"], info["training"]
    licences = info.get("licences", {})
    lines = [
        "---",
        "library_name: critic-prm",
        *([f"base_model: {json.dumps(info['base'])}"] if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", info["base"]) else []),
        "tags: [process-reward-model, step-verification]",
        "---",
        f"# {name}",
        "",
        *(
            [f"**Do not use this verifier.** It is {info['useless'].removesuffix('; do not use')}.", ""]
            if info.get("useless")
            else []
        ),
        f"A process reward model distilled with critic-prm: the `{info['student']}` student, base {info['base']}. It gives",
        "P(the step is correct) for every step of a solution.",
        "",
        "```python",
        "from distill.verifier import load_verifier",
        "",
        f'verifier = load_verifier("{name}")',
        'verifier.score("What is 2 + 3 * 4?", ["3 * 4 = 12", "2 + 12 = 14"])',
        "```",
        "",
        *(_elsewhere(name) if info["student"] == "transformer" else []),
        "## Data",
        "",
        f"Trained on `{training['data']}` (SHA-256 of its files: {training['data_sha256'][:16]}), seed {training['seed']}:",
        f"{training['solutions']} solutions with {training['steps']} labelled steps. Sources: {_sources(training['sources'])}.",
        *_licences(info["base"], licences),
        "",
        "## Metrics",
        "",
        "| split | solutions | step AUROC | Brier | ECE | first-error F1 | erroneous | correct |",
        "|---|---|---|---|---|---|---|---|",
        *(_metric_row(split, m) for split, m in metrics.items()),
        "",
        "In brackets: 95% intervals, problems resampled with all their solutions.",
        *(
            [
                "Cross-validated: each solution was scored by a model that had not seen its problem; calibration and decision",
                "come from the other folds.",
            ]
            if "cross-validated" in metrics
            else ["Dev chose the calibration, so its row is optimistic; the test row is not."]
        ),
        *_unseen(info["unseen"]),
        "",
        "## Reading the scores",
        "",
        *_decided(decision),
        "Scores after the first error are given but were not trained on.",
        f"Calibrated with: {info['calibration']['method']}.",
        "",
        "## Limits",
        "",
        "It was trained on the data above. On other kinds of problems, writers or lengths, run `critic-prm calibrate` on 100",
        "solutions, which need no labels, and measure it with `critic-prm evaluate` before you rely on a score. It judges form",
        "and arithmetic far better than reasoning.",
        "",
    ]
    return "\n".join(lines)


def _decided(decision: Mapping[str, Any]) -> list[str]:
    rules = {
        "first-below": "The first step with p < {0} is judged the first error.",
        "lowest-step": "The step with the lowest p is judged the first error if p < {0}.",
        "near-lowest": "A solution has an error if the log odds of its lowest p, plus half the logarithm of its number of\n"
        "steps, are below those of {0}; the first step within 0.5 of the lowest log odds is judged the first error.",
    }
    lines = [rules[decision["rule"]].format(f"{decision['threshold']:.4f}")]
    if decision["f1"] is None:
        return [*lines, "The threshold was not chosen: the known solutions are all erroneous or all correct."]
    return [
        *lines,
        f"Chosen for first-error F1 ({decision['f1']:.3f}) on {decision['solutions']} solutions of {decision['data']}.",
    ]


def _unseen(unseen: Mapping[str, Any]) -> list[str]:
    """Describe what to expect on a new kind of data."""
    if not unseen["expected"]:
        return []
    titles = {"auroc": "step AUROC", "f1": "first-error F1", "f1_calibrated": "F1 after `calibrate`"}
    lines = [
        "",
        "## New kinds of data",
        "",
        "Each source was scored by a model trained without data of its kind. Decisions and shares come from other kinds, too;",
        "`calibrate` saw its solutions without labels. The last row is for one more kind: mean, and 90% prediction interval.",
        "",
        f"| source | solutions | {' | '.join(titles.values())} |",
        "|---|---|---|---|---|",
    ]
    for row in unseen["sources"]:
        cells = ("-" if row[name] is None else f"{row[name]:.3f}" for name in titles)
        lines.append(f"| {row['source'] or 'unnamed'} | {row['solutions']} | {' | '.join(cells)} |")
    summary = []
    for name in titles:
        value = unseen["expected"].get(name)
        summary.append(f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" if value else "-")
    return [*lines, f"| **a new kind** | | {' | '.join(summary)} |"]


def _sources(sources: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'unnamed'} ({count})" for name, count in sources.items())


def _elsewhere(name: str) -> list[str]:
    """Describe how to use a transformer's folder without critic-prm: it is a plain token classifier."""
    return [
        'The folder is a plain `AutoModelForTokenClassification`: class 1 is "correct", read at each step\'s last token, not',
        "calibrated. `scoring.json` describes the text around problem and steps. In vLLM:",
        "",
        "```",
        f'vllm serve {name} --runner pooling --pooler-config \'{{"tok_pooling_type": "ALL"}}\' --dtype float32',
        "```",
        "",
    ]


def _licences(base: str, licences: Mapping[str, str]) -> list[str]:
    data = licences.get("data") or "that of its sources"
    if base == "none":
        return [f"The licence of the data is {data}."]
    of_base = licences.get("base") or "not stated in its folder; check its origin"
    return [f"The licence of the data is {data}; the licence of the base is {of_base}."]


def _metric_row(split: str, m: Mapping[str, Any]) -> str:
    cells = [_figure(m, name) for name in ("auroc", "brier", "ece", "f1", "erroneous", "correct")]
    return f"| {split} | {m['solutions']} | {' | '.join(cells)} |"


def _figure(m: Mapping[str, Any], name: str) -> str:
    if m[name] is None:
        return "-"
    bounds = m.get("intervals", {}).get(name)
    return f"{m[name]:.3f}" + (f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else "")


def licence_of(name: str) -> str:
    """Return the licence in the README.md metadata of a folder or of a cached hub model; "" if none is stated."""
    folder = Path(name)
    cards = [folder / "README.md"] if folder.is_dir() else sorted(_fetched(name).glob("snapshots/*/README.md"))
    for card in cards:
        if card.is_file():
            front = re.match(r"---\n(.*?)\n---", card.read_text("utf-8", errors="replace"), re.DOTALL)
            licence = re.search(r"^licen[sc]e: *[\"']?([^\"'\n]+)", front.group(1), re.MULTILINE) if front else None
            if licence:
                return licence.group(1).strip()
    return ""


def _fetched(name: str) -> Path:
    """Return the folder in which the hub client caches a model."""
    home = os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub"))
    return Path(home).expanduser() / f"models--{name.replace('/', '--')}"


def judge_card(name: str, info: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Return the README.md of a generative student's folder."""
    training, style = info["training"], info["style"]
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        *([f"base_model: {info['base']}"] if info["base_is_hub_name"] else []),
        "tags: [critic-prm, process-reward-model, generative-verifier, step-verification]",
        "---",
        f"# {name}",
        "",
        f"A small judge of solutions step by step, fine-tuned with critic-prm from {info['base']} on the critiques of a larger",
        "one. It writes a critique and a verdict for every step, up to the first error.",
        "",
        "## Serving and asking",
        "",
        *_asking(name, info),
        "",
        "## Data",
        "",
        f"`{training['data']}` (SHA-256 of its files: {training['data_sha256'][:16]}), seed {training['seed']}:"
        f" {training['chats']:,} chats, {training['learned_tokens']:,} tokens of answers an epoch.",
        *_funnel(training["account"]),
        "The licence of the data is that of its sources; that of the base holds for the student.",
        "",
        "## Metrics",
        "",
        f"Loss a token: train {_number(metrics['train_loss'])}, dev {_number(metrics['dev']['loss'])} (the best of"
        f" {training['looks']} evaluations, so slightly optimistic).",
        *_judging(metrics["dev"], style),
        "",
        "## Limits",
        "",
        "It imitates the judge it was trained on, including its errors, on similar problems. Measure it with",
        "`critic-prm judge-eval` on your own data before relying on it. An answer that cannot be parsed counts as unreadable;",
        "its verdict is never guessed.",
        "",
    ]
    return "\n".join(lines)


def _asking(name: str, info: Mapping[str, Any]) -> list[str]:
    style, limit = info["style"], info["max_tokens"]
    lines = ["```", f"vllm serve {name}"]
    if style is None:
        return [
            *lines,
            "```",
            "",
            "It answers conversations like those it was trained on, through any OpenAI-compatible client.",
        ]
    return [
        *lines,
        f"critic-prm label solutions.jsonl -o labels.jsonl --judge vllm/{name} --base-url http://localhost:8000/v1 \\",
        f"    --style {name}/{style['name']}.jinja --temperature 0 --max-tokens {limit}",
        "```",
        "",
        f"Its prompts have the style `{style['name']}` (fingerprint {style['fingerprint']}); the template is in this",
        f"folder, so that prompts are the same as in training. Its context is {info['context']:,} tokens (prompt and answer).",
    ]


def _funnel(account: Mapping[str, Any]) -> list[str]:
    if not account:
        return []
    lines = ["", "| filter | in | kept | left out |", "|---|---|---|---|"]
    for stage in account["funnel"]:
        why = ", ".join(f"{n:,} {reason}" for reason, n in stage["stopped"].items())
        lines.append(f"| {stage['stage']} | {stage['in']:,} | {stage['out']:,} | {why} |")
    return [*lines, ""]


def _judging(dev: Mapping[str, Any], style: Mapping[str, Any] | None) -> list[str]:
    judging = dev.get("judging")
    if not judging or style is None:
        return []
    return [
        "",
        f"As a judge of {judging['solutions']} solutions of dev, decoded greedily: {_share(judging['read'])} parsed,"
        f" first error found exactly in {_share(judging['accuracy'])} (erroneous {_share(judging['erroneous'])}, correct"
        f" {_share(judging['correct'])}; official F1 {_number(judging['f1'])}). Unparseable answers count as wrong.",
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
