"""Who reads or types on a console, and for how long."""
