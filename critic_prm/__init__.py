"""Step verdicts from a generative critic, training sets from the verdicts, a small verifier from the training sets."""
