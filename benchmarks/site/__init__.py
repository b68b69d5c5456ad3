"""What a whole site takes."""
