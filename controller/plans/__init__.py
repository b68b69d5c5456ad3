"""Plans of moves: decided on what runs where, and carried out wave by wave."""
