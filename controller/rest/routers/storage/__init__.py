"""Endpoints of images and of volumes."""
