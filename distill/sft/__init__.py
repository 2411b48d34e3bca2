"""The generative student: a judge's critiques in, a small causal model that judges in the same style out."""
