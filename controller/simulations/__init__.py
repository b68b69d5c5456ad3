"""Simulations on a Celery fleet."""
