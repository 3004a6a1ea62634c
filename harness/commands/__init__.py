"""What each command does; `harness.cli` only parses."""
