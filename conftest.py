"""Turns the plugin on for cases/."""

pytest_plugins = ["harness.plugin", "pytester"]
