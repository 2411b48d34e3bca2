"""Render the model card of a verifier in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def model_card(name: str, info: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the README.md of a verifier folder."""
    threshold, training = info["threshold_from"], info["training"]
    licences = info.get("licences", {})
    lines = [
        "---",
        "library_name: critic-prm",
        *([f"base_model: {json.dumps(info['base'])}"] if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", info["base"]) else []),
        "tags: [process-reward-model, step-verification]",
        "---",
        f"# {name}",
        "",
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
        f"Dev chose {'calibration' if threshold['f1'] is None else 'calibration and threshold'}, so its own row is flattering;"
        " the test row is not.",
        "",
        "## Reading the scores",
        "",
        f"The first step with p < {info['threshold']:.4f} is judged the first error;",
        _chosen(threshold),
        "Scores after the first error are given but were not trained on.",
        f"Calibrated with: {info['calibration']['method']}.",
        "",
        "## Limits",
        "",
        "It knows what its data showed it. Expect other figures on problems, writers or lengths of another kind, and measure",
        "them with `critic-prm evaluate` before relying on a score. It sees form and arithmetic far better than reasoning.",
        "",
    ]
    return "\n".join(lines)


def _chosen(threshold: Mapping[str, Any]) -> str:
    where = f"the {threshold['solutions']} solutions of {threshold['data']} whose first error is known"
    if threshold["f1"] is None:
        return f"that was not chosen: {where} are all erroneous or all correct."
    return f"it has the best first-error F1 ({threshold['f1']:.3f}) on {where}."


def _sources(sources: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'unnamed'} ({count})" for name, count in sources.items())


def _elsewhere(name: str) -> list[str]:
    """Describe how to use a transformer's folder without critic-prm: it is a plain token classifier."""
    return [
        'The folder is a plain `AutoModelForTokenClassification`: class 1 is "correct", read at each step\'s last token, not',
        "calibrated. `scoring.json` says what stands around problem and steps. In vLLM:",
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
    of_base = licences.get("base") or "not stated in its folder: look at where it comes from"
    return [f"The licence of the data is {data}; the licence of the base is {of_base}."]


def _metric_row(split: str, m: Mapping[str, Any]) -> str:
    cells = [_figure(m, name) for name in ("auroc", "brier", "ece", "f1", "erroneous", "correct")]
    return f"| {split} | {m['solutions']} | {' | '.join(cells)} |"


def _figure(m: Mapping[str, Any], name: str) -> str:
    if m[name] is None:
        return "-"
    bounds = m.get("intervals", {}).get(name)
    return f"{m[name]:.3f}" + (f" [{bounds[0]:.3f}, {bounds[1]:.3f}]" if bounds else "")
