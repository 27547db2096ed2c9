"""Fairness between groups of people: equal treatment by a sensitive attribute."""
