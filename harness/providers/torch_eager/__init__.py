"""Plain PyTorch in the working precision: what any platform can fall back to."""
