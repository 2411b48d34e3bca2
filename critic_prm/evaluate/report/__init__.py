"""Render label files and evaluations as a self-contained HTML report, or as plots for papers."""
