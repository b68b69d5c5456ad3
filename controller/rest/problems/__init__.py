"""Every error as a problem document, and the refusals that the audit keeps."""
