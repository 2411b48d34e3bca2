"""Make trajectories: sample policies, roll out, search trees, plant errors, exact problem families."""
