"""The command line: options -> library -> print, one command group a file; no logic."""
