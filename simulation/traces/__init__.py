"""What traces say: their formats, rows and wishes, read as a run goes on."""
