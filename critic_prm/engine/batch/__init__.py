"""Questions that can wait go to a provider in one order, or into a file; the replies end in the same cache as all others."""
