"""A round's inputs and outcome. Every module may import these; they import no other package."""
