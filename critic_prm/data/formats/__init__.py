"""Dataset formats, one module per format. A module's first docstring line is its entry in the table of formats."""
