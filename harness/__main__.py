"""`python -m harness` is `kernel-parity`."""

from harness.cli import main

main()
