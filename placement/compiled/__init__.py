"""The loops of policies as compiled modules, where they were built; see `forms`."""
