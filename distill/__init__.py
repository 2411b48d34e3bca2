"""From training sets to a small discriminative PRM, and the verifier itself."""
