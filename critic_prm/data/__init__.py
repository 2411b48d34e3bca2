"""Trajectories, judgements and labels, and the files they are read from and written to."""
