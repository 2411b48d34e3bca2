"""The generative student: a small causal model fine-tuned on a judge's critiques to judge in the same style."""
