"""The live system as a trace: what a register decided, and how."""
