"""`python -m critic_prm` is `critic-prm`."""

from critic_prm.cli import main

main()
