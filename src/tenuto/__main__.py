"""`python -m tenuto` is the command line."""

from tenuto.cli import main

main()
