"""What the Linux driver says of AMD GPUs: KFD's topology and the PCI device's files, which rocm-smi and amd-smi read too.

No library and no tool is needed; a file that is not there leaves its fact out. `root` stands for / (tests describe another).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_NODES = "sys/class/kfd/kfd/topology/nodes"
_DEVICE = "sys/bus/pci/devices/BUS"
# fact -> where it is read; BUS is the device's PCI address
SOURCES = {
    "xcds": f"num_xcc of /{_NODES}/*/properties",
    "compute_partition": f"/{_DEVICE}/current_compute_partition",
    "memory_partition": f"/{_DEVICE}/current_memory_partition",
    "power_cap_w": f"/{_DEVICE}/hwmon/hwmon*/power1_cap",
}


def gpus(root: Path = Path("/")) -> list[dict[str, str]] | None:
    """The facts of each GPU, or partition of one, that this process may open, in the runtime's order; None without a topology.

    `bus` (domain:bus:device.function), `arch`, and those of SOURCES that can be read; power in watts, all as text.
    """
    folder = root / _NODES
    if not folder.is_dir():
        return None
    nodes = sorted((node for node in folder.iterdir() if node.name.isdecimal()), key=lambda node: int(node.name))
    return [_facts(properties, root) for properties in map(_properties, nodes) if _usable(properties, root)]


def common(found: Sequence[Mapping[str, str]], bus: str = "") -> dict[str, str]:
    """The facts that hold of every GPU at that PCI address (domain:bus:device), or of all when none is there; without `bus`."""
    chosen = [gpu for gpu in found if bus and gpu["bus"].startswith(bus)] or found
    return {key: value for key, value in chosen[0].items() if key != "bus" and all(gpu.get(key) == value for gpu in chosen)} if chosen else {}


def _properties(node: Path) -> dict[str, int]:
    lines = (line.split() for line in _read(node / "properties").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal()}


def _usable(properties: Mapping[str, int], root: Path) -> bool:
    """A node with compute units whose render device is here: a container sees every GPU's node, and the devices it was given."""
    minor = properties.get("drm_render_minor", 0)
    return properties.get("simd_count", 0) > 0 and (not minor or (root / f"dev/dri/renderD{minor}").exists())


def _facts(properties: Mapping[str, int], root: Path) -> dict[str, str]:
    place = properties.get("location_id", 0) & 0xFFFF  # above it: the number of the partition
    bus = f"{properties.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
    device = root / _DEVICE.replace("BUS", bus)
    cap = next((text for file in sorted(device.glob("hwmon/hwmon*/power1_cap")) if (text := _read(file)).isdecimal()), "")
    facts = {
        "bus": bus,
        "arch": _arch(properties.get("gfx_target_version", 0)),
        "xcds": str(properties.get("num_xcc", "")),
        "compute_partition": _read(device / "current_compute_partition"),
        "memory_partition": _read(device / "current_memory_partition"),
        "power_cap_w": str(int(cap) // 1_000_000) if cap else "",  # from microwatts
    }
    return {key: value for key, value in facts.items() if value}


def _arch(version: int) -> str:
    """gfx942 for 90402, gfx90a for 90010: major, minor and stepping in two decimal digits each, the last two written in hex."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
