"""Search for solutions with a policy and a critic: ranking, best-of-N, beam search, MCTS, refinement."""
