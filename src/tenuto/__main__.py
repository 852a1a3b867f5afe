"""`python -m tenuto` is the command line."""

from tenuto.entry import main

main()
