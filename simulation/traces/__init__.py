"""What traces say: their formats, rows and constraints, read as a run goes on."""
