"""Split the text of a solution into steps: what is never cut, the methods, and their use on trajectories."""
