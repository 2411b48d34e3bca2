"""Trajectories out of nothing but a seed: one source a module; the families with exact labels are in `families/`."""
