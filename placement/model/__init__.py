"""What one round decides on and what it decides; everybody knows these, they know nobody."""
