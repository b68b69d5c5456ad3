"""Plans of moves: what runs, where it could run instead, and in which order it gets there."""
