"""Prompt styles: render trajectories as messages and parse replies into judgements."""
