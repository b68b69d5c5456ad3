"""Do the mechanisms have the properties that are claimed of them? A search for counter-examples."""
