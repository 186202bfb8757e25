"""`python -m andrea` is `andrea`."""

from andrea.cli import main

main()
