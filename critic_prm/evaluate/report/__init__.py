"""Label files and evaluations in, one HTML file that opens anywhere out; or plots for papers."""
