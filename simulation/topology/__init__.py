"""Hosts, tenant trees and host events of a simulation."""
