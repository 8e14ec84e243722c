"""What both ends of a delta must compute alike: the tensor format, its arithmetic, and the bsdiff steps."""
