"""Who implements an op: a file a library; the library is imported inside the function that needs it. Start in registry.py."""

from harness.providers.libraries import LIBRARIES, Library, versions
from harness.providers.registry import PLATFORMS, Provider, implements, providers, providers_of
from harness.providers.resolve import call, resolve

__all__ = ["LIBRARIES", "PLATFORMS", "Library", "Provider", "call", "implements", "providers", "providers_of", "resolve", "versions"]
