"""Mechanisms for trees of tenants: H-DRF, MCH and their relatives."""
