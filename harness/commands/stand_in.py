"""A plugin that `bisect` loads in its workers: versions of SGLang before 0.5.21 import torchvision at their top, for what no kernel touches."""

from harness.offline.codegen.standins import stand_in

stand_in()
