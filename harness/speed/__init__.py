"""Is it fast: when to stop measuring, how near to the roofline, and whether a time differs. Pure: numbers in, a verdict out."""
