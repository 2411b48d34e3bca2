"""What a verifier is and measured, in; its model card in Markdown, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_card(name: str, info: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """The README.md of a verifier's folder."""
    threshold, training = info["threshold_from"], info["training"]
    lines = [
        "---",
        "library_name: critic-prm",
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
        "## Data",
        "",
        f"Trained on `{training['data']}` (SHA-256 of its files: {training['data_sha256'][:16]}), seed {training['seed']}:",
        f"{training['solutions']} solutions with {training['steps']} labelled steps. Sources: {_sources(training['sources'])}.",
        "The licence of the data is that of its sources.",
        "",
        "## Metrics",
        "",
        "| split | solutions | step AUROC | Brier | ECE | first-error F1 | erroneous | correct |",
        "|---|---|---|---|---|---|---|---|",
        *(_metric_row(split, m) for split, m in metrics.items()),
        "",
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


def _metric_row(split: str, m: Mapping[str, Any]) -> str:
    cells = [f"{m[k]:.3f}" if m[k] is not None else "-" for k in ("auroc", "brier", "ece", "f1", "erroneous", "correct")]
    return f"| {split} | {m['solutions']} | {' | '.join(cells)} |"
