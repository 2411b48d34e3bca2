"""Problem families: programs that write problems with correct solutions, or wrong ones with a known first error."""
