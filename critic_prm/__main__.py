"""Run the command line: `python -m critic_prm` is the same as `critic-prm`."""

from critic_prm.cli import main

main()
