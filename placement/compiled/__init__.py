"""Compiled forms of the loops of policies; see `placement.packing.compiled_loops`."""
