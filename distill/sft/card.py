"""Render the model card of a generative student in Markdown, including how to serve and query it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
        f" {training['looks']} looks, so a little flattering).",
        *_judging(metrics["dev"], style),
        "",
        "## Limits",
        "",
        "It repeats the ways of the judge it learned from, its errors included, on problems like those it saw. Measure it with",
        "`critic-prm judge-eval` on your own before relying on it. What it cannot put into the form is said to be unreadable,",
        "never guessed.",
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
        f"It is asked in the style `{style['name']}` (fingerprint {style['fingerprint']}); the prompt lies in this folder, so",
        f"that it stays the one it was trained with. Its context is {info['context']:,} tokens, prompt and answer together.",
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
    found = dev.get("judging")
    if not found or style is None:
        return []
    return [
        "",
        f"As a judge of {found['solutions']} solutions of dev, decoded greedily: {_share(found['read'])} read out, first error"
        f" found exactly in {_share(found['accuracy'])} (erroneous {_share(found['erroneous'])}, correct"
        f" {_share(found['correct'])}; official F1 {_number(found['f1'])}). What cannot be read counts as wrong.",
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
