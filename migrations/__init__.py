"""Alembic's revisions of the register center. They carry their own text and import no models."""
