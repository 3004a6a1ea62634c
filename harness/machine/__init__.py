"""Where it runs: platform detection, the zygote and its isolated workers, guarded memory. The only room that touches a device runtime."""
