"""Train a small discriminative PRM from a training set, calibrate it, and score steps with it."""
