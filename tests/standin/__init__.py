"""A stand-in for AITER on a CPU: the functions and signatures of the facts, computed by PyTorch, refused where the facts refuse."""
