"""One dataset convention a file, read and written."""
