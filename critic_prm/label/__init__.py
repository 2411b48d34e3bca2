"""Label trajectories with any critic."""
